// What observers are told of an answer that a call asks for.
#pragma once

#include "server/api/call.h"

namespace kvern::server {

AnswerInfo AnswerInfoOf(const Call& call, const Request& request);

}  // namespace kvern::server
