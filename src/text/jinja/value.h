// Value: what a template computes with, with the semantics of the Python object it stands for.
//
// Kinds: undefined, none, bool, int (64 bits), float, string (UTF-8), list (and the sequences that
// behave like it: tuple, dict views, range), dict (insertion ordered), iterator (Python generators:
// read once) and object (anything callable, namespaces, loops).
//
// Everything but iterators and objects is immutable, as in jinja2's ImmutableSandboxedEnvironment,
// so values share their representation and copying is cheap. Cycles are impossible except through
// namespaces, which the interpreter clears when a rendering ends.
//
// Thread-compatible: values of one rendering stay on one thread; immutable values may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace kvern::text::jinja {

class Runtime;
class Value;
class Dict;
class Object;
class Iterator;

// Why a value is missing: the message that using it would give.
struct Undefined {
  std::string message;
  bool is_security = false;  // using it is refused by the sandbox
};

struct String {
  std::string bytes;
  bool is_safe = false;  // Python's Markup: escapes what is added to it
};

struct List {
  // kGroup: a pair from the groupby filter, a tuple whose parts also have names.
  enum class Flavor { kList, kTuple, kKeys, kValues, kItems, kRange, kGroup };
  std::vector<Value> items;
  Flavor flavor = Flavor::kList;
  int depth = 1;       // nesting levels, this one included
  std::string repr{};  // of a range, which prints its bounds

  // Python allows x[i] on it.
  bool is_indexable() const {
    return flavor == Flavor::kList || flavor == Flavor::kRange || is_tuple();
  }
  bool is_tuple() const { return flavor == Flavor::kTuple || flavor == Flavor::kGroup; }
};

class Value {
 public:
  enum class Kind {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kList,
    kDict,
    kIterator,
    kObject
  };

  Value();  // undefined, without a name
  static Value MakeUndefined(std::string message, bool is_security = false);
  static Value None();
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value MakeString(std::string bytes, bool is_safe = false);
  static Value MakeList(std::vector<Value> items, List::Flavor flavor = List::Flavor::kList);
  static Value Tuple(std::vector<Value> items);
  static Value MakeRange(std::vector<Value> items, std::string repr);
  static Value MakeDict(Dict dict);
  static Value MakeIterator(std::shared_ptr<Iterator> iterator);
  static Value MakeObject(std::shared_ptr<Object> object);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_iterator() const { return kind() == Kind::kIterator; }
  bool is_object() const { return kind() == Kind::kObject; }
  // Python's int, which bool derives from.
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_number() const { return is_integral() || is_float(); }
  bool is_safe_string() const { return is_string() && string().is_safe; }

  // REQUIRES: the kind of each name.
  const Undefined& undefined() const { return *std::get<0>(data_); }
  bool as_bool() const { return std::get<2>(data_); }
  int64_t as_int() const;   // of an int or a bool
  double as_float() const;  // of any number
  const String& string() const { return *std::get<5>(data_); }
  const std::string& str() const { return string().bytes; }
  const List& list() const { return *std::get<6>(data_); }
  const std::vector<Value>& items() const { return list().items; }
  const Dict& dict() const { return *std::get<7>(data_); }
  Iterator& iterator() const { return *std::get<8>(data_); }
  const std::shared_ptr<Iterator>& shared_iterator() const { return std::get<8>(data_); }
  const std::shared_ptr<Object>& object() const { return std::get<9>(data_); }

  // Python's bool(x).
  bool IsTrue() const;
  // Nesting levels of the data below, 0 for scalars: recursion over a value is bounded by it.
  int depth() const;
  // The jinja2 name of its type, as in error messages: "str", "dict", ...
  std::string_view type_name() const;
  // Python's `is`.
  bool IsSame(const Value& other) const;

 private:
  using Data =
      std::variant<std::shared_ptr<const Undefined>, std::nullptr_t, bool, int64_t, double,
                   std::shared_ptr<const String>, std::shared_ptr<const List>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Iterator>, std::shared_ptr<Object>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

// Insertion-ordered map with Python's key equality (1 == 1.0 == True).
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // Overwrites the value but keeps the place of a key that is there.
  // REQUIRES: IsHashable(key).
  void Set(const Value& key, Value value);
  void Set(std::string_view key, Value value) {
    Set(Value::MakeString(std::string(key)), std::move(value));
  }
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

  static bool IsHashable(const Value& key);

 private:
  template <typename Matches>
  std::optional<size_t> Locate(size_t hash, const Matches& matches) const;
  void Index(size_t entry, size_t hash);

  std::vector<Entry> entries_;
  std::vector<size_t> hashes_;
  std::vector<uint32_t> slots_;  // open addressing, entry + 1; empty while the dict is small
  int depth_ = 1;
};

// A stream of values that can be read once.
class Iterator {
 public:
  explicit Iterator(int depth) : depth_(depth) {}
  virtual ~Iterator() = default;
  // The next value, or nothing at the end.
  virtual Result<std::optional<Value>> Next(Runtime& runtime) = 0;
  int depth() const { return depth_; }

 private:
  int depth_;  // nesting levels below, this one included
};

// Arguments of a call, filter or test.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A value with behaviour: functions, macros, bound methods, namespaces, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual bool is_callable() const { return false; }
  virtual Result<Value> Call(Runtime& runtime, const CallArgs& args);
  // Nothing when there is no such attribute.
  virtual Result<std::optional<Value>> GetAttr(Runtime& runtime, std::string_view name);
  // What Python's repr gives where that is stable, or a description in angle brackets.
  virtual Result<std::string> Repr(Runtime& runtime) const;
  virtual int depth() const { return 0; }
};

}  // namespace kvern::text::jinja
