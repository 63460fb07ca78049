#include "base/memory_info.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace kvern {
namespace {

// Where the two versions of control groups keep their numbers, all in bytes.
struct CgroupFiles {
  std::string_view mount;
  std::string_view limit;
  std::string_view usage;
  std::string_view droppable;  // the line of memory.stat with page cache not lately used
};

constexpr CgroupFiles kVersion1 = {.mount = "sys/fs/cgroup/memory",
                                   .limit = "memory.limit_in_bytes",
                                   .usage = "memory.usage_in_bytes",
                                   .droppable = "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {.mount = "sys/fs/cgroup",
                                   .limit = "memory.max",
                                   .usage = "memory.current",
                                   .droppable = "inactive_file"};

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t length = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return lines;
}

// The number that `text` starts with, after spaces.
std::optional<uint64_t> Number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc()) return std::nullopt;
  return number;
}

// The number that follows `name` at the start of a line.
std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view name) {
  for (const std::string_view line : Lines(text)) {
    if (line.starts_with(name)) return Number(line.substr(name.size()));
  }
  return std::nullopt;
}

std::optional<uint64_t> NumberIn(const std::string& path) {
  const auto text = ReadTextFile(path);
  if (!text.ok()) return std::nullopt;
  return Number(*text);  // "max" is no number, and no limit
}

void ApplyLimit(const std::string& folder, const CgroupFiles& files, MemoryInfo& info) {
  const auto limit = NumberIn(fmt::format("{}/{}", folder, files.limit));
  if (!limit) return;
  const uint64_t usage = NumberIn(fmt::format("{}/{}", folder, files.usage)).value_or(0);
  const auto stat = ReadTextFile(folder + "/memory.stat");
  const std::string droppable_name = std::string(files.droppable) + " ";
  const uint64_t droppable =
      stat.ok() ? NumberAfter(*stat, droppable_name).value_or(0) : uint64_t{0};
  const uint64_t held = usage - std::min(usage, droppable);
  info.total_bytes = std::min(info.total_bytes, *limit);
  info.available_bytes = std::min(info.available_bytes, *limit - std::min(*limit, held));
}

// Applies the limits of the group and of all that enclose it. Groups that are not there are passed
// over: inside a container the path may be the host's.
void ApplyLimits(const std::string& root, const CgroupFiles& files, std::string group,
                 MemoryInfo& info) {
  while (true) {
    while (group.ends_with('/')) group.pop_back();
    ApplyLimit(fmt::format("{}{}{}", root, files.mount, group), files, info);
    const size_t parent = group.rfind('/');
    if (parent == std::string::npos) return;
    group.resize(parent);
  }
}

}  // namespace

Result<MemoryInfo> ReadMemoryInfo(const std::string& root) {
  const std::string path = root + "proc/meminfo";
  KVERN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const auto total_kib = NumberAfter(text, "MemTotal:");
  const auto available_kib = NumberAfter(text, "MemAvailable:");
  if (!total_kib || !available_kib) {
    return Errorf(ErrorCode::kCorrupt, "{}: has no MemTotal or no MemAvailable", path);
  }
  MemoryInfo info{.total_bytes = *total_kib * 1024, .available_bytes = *available_kib * 1024};

  const auto groups = ReadTextFile(root + "proc/self/cgroup");
  if (!groups.ok()) return info;
  // Lines are "number:controllers:path"; version 2 has number 0 and no controllers.
  for (const std::string_view line : Lines(*groups)) {
    const size_t controllers = line.find(':');
    const size_t group = line.find(':', controllers + 1);
    if (controllers == std::string_view::npos || group == std::string_view::npos) continue;
    const std::string group_path(line.substr(group + 1));
    const auto names = fmt::format(",{},", line.substr(controllers + 1, group - controllers - 1));
    if (line.starts_with("0::")) ApplyLimits(root, kVersion2, group_path, info);
    if (names.find(",memory,") != std::string::npos) {
      ApplyLimits(root, kVersion1, group_path, info);
    }
  }
  return info;
}

}  // namespace kvern
