#include "server/api/reply_parts.h"

#include <utility>

#include "base/check.h"

namespace kvern::server {

class ReplyParts::PartSink final : public HttpSink {
 public:
  PartSink(std::shared_ptr<ReplyParts> home, size_t part) : home_(std::move(home)), part_(part) {}

  void Send(HttpReply reply) override { home_->Set(part_, std::move(reply)); }
  void OnClosed(std::function<void()> closed) override { home_->OnClosed(std::move(closed)); }

  // Streams have one prompt.
  void Begin(HttpReply) override { CHECK(false); }
  void Write(std::string) override { CHECK(false); }
  void End() override { CHECK(false); }

 private:
  const std::shared_ptr<ReplyParts> home_;
  const size_t part_;
};

ReplyParts::ReplyParts(const Call& call, size_t count)
    : call_(call.WithoutBody()), bodies_(count), num_left_(count) {}

std::shared_ptr<ReplyParts> ReplyParts::Make(const Call& call, size_t count) {
  std::shared_ptr<ReplyParts> parts(new ReplyParts(call, count));
  call.sink->OnClosed([weak = std::weak_ptr(parts)] {
    if (const auto self = weak.lock()) self->Close();
  });
  return parts;
}

std::shared_ptr<HttpSink> ReplyParts::SinkOf(size_t part) {
  return std::make_shared<PartSink>(shared_from_this(), part);
}

void ReplyParts::Set(size_t part, HttpReply reply) {
  bool is_first_failure = false, is_last = false;
  {
    const std::lock_guard lock(mutex_);
    is_first_failure = reply.status != 200 && !failure_;
    bodies_[part] = std::move(reply.body);
    if (is_first_failure) {
      failure_ = std::move(reply);
      failure_->body = std::move(bodies_[part]);
    }
    is_last = --num_left_ == 0;
  }
  if (is_first_failure) Close();
  if (!is_last) return;
  if (failure_) return call_.sink->Send(*std::move(failure_));
  HttpReply whole = call_.Head(200);
  for (const std::string& body : bodies_) whole.body += (whole.body.empty() ? "[" : ",") + body;
  whole.body += "]";
  call_.sink->Send(std::move(whole));
}

void ReplyParts::OnClosed(std::function<void()> closed) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closed_) {
      closed_.push_back(std::move(closed));
      return;
    }
  }
  closed();
}

void ReplyParts::Close() {
  std::vector<std::function<void()>> closed;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    closed = std::exchange(closed_, {});
  }
  for (const auto& call : closed) call();
}

}  // namespace kvern::server
