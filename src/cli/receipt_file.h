// Receipts in files: by themselves, in a reply, or in lines of replies.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/receipt.h"

namespace kvern::cli {

struct FoundReceipt {
  size_t line = 0;  // from 1, in a file of JSON lines; 0: the file is one document
  engine::Receipt receipt;
};

// The text is a receipt, a document that holds one as "receipt" or "kvern_receipt" not far below
// its root (as an object, or as text), or has such a document on each line; lines without a receipt
// are left out. Errors: kCorrupt, naming `name` and line.
Result<std::vector<FoundReceipt>> FindReceipts(const std::string& name, std::string_view text);

}  // namespace kvern::cli
