#include "text/jinja/tests.h"

#include "text/jinja/convert.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"

namespace kvern::text::jinja {
namespace {

using Check = bool (*)(const Value&);

// A test of the value's kind alone.
template <Check kCheck>
Result<bool> Holds(Runtime&, const Value& subject, const Args&) {
  return kCheck(subject);
}

bool IsTrueItself(const Value& x) { return x.is_bool() && x.as_bool(); }
bool IsFalseItself(const Value& x) { return x.is_bool() && !x.as_bool(); }
bool IsDefined(const Value& x) { return !x.is_undefined(); }
bool IsUndefined(const Value& x) { return x.is_undefined(); }
bool IsNone(const Value& x) { return x.is_none(); }
bool IsBoolean(const Value& x) { return x.is_bool(); }
bool IsInteger(const Value& x) { return x.is_int(); }
bool IsFloat(const Value& x) { return x.is_float(); }
bool IsNumber(const Value& x) { return x.is_number(); }
bool IsString(const Value& x) { return x.is_string(); }
bool IsMapping(const Value& x) { return x.is_dict(); }
bool IsEscaped(const Value& x) { return x.is_safe_string(); }
// An undefined value has a length and elements, as jinja2 sees it.
bool IsSequence(const Value& x) {
  return x.is_string() || x.is_dict() || x.is_undefined() ||
         (x.is_list() && x.list().is_indexable());
}
bool IsIterable(const Value& x) {
  return x.is_string() || x.is_dict() || x.is_undefined() || x.is_list() || x.is_iterator() ||
         (x.is_object() && x.object()->type_name() == "LoopContext");
}
// An undefined value can be called, and then fails.
bool IsCallable(const Value& x) {
  return x.is_undefined() || (x.is_object() && x.object()->is_callable());
}

template <int64_t kRemainder>
Result<bool> Modulo2(Runtime& runtime, const Value& subject, const Args&) {
  KVERN_ASSIGN_OR_RETURN(const Value rest, Apply(runtime, BinaryOp::kMod, subject, Value::Int(2)));
  return Equals(rest, Value::Int(kRemainder));
}

Result<bool> DivisibleBy(Runtime& runtime, const Value& subject, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const Value rest, Apply(runtime, BinaryOp::kMod, subject, args[0]));
  return Equals(rest, Value::Int(0));
}

template <CompareOp kOp>
Result<bool> Compares(Runtime& runtime, const Value& subject, const Args& args) {
  return Compare(runtime, kOp, subject, args[0]);
}

Result<bool> SameAs(Runtime&, const Value& subject, const Args& args) {
  return subject.IsSame(args[0]);
}

// str(x).isupper() and its like.
Result<bool> TextMethod(Runtime& runtime, const Value& subject, std::string_view method) {
  KVERN_ASSIGN_OR_RETURN(std::string text, ToStr(runtime, subject));
  const Value bound = *BindMethod(Value::MakeString(std::move(text)), method);
  KVERN_ASSIGN_OR_RETURN(const Value result, bound.object()->Call(runtime, {}));
  return result.IsTrue();
}
Result<bool> IsUpper(Runtime& runtime, const Value& subject, const Args&) {
  return TextMethod(runtime, subject, "isupper");
}
Result<bool> IsLower(Runtime& runtime, const Value& subject, const Args&) {
  return TextMethod(runtime, subject, "islower");
}

Result<bool> NamesFilter(Runtime&, const Value& subject, const Args&) {
  if (!subject.is_string()) return false;
  return FindFilter(subject.str()) != nullptr || IsUnsupportedFilter(subject.str());
}
Result<bool> NamesTest(Runtime&, const Value& subject, const Args&) {
  return subject.is_string() && FindTest(subject.str()) != nullptr;
}

// clang-format off
const Test kTests[] = {
    {"!=", {{"other"}, 1}, Compares<CompareOp::kNe>},
    {"<", {{"other"}, 1}, Compares<CompareOp::kLt>},
    {"<=", {{"other"}, 1}, Compares<CompareOp::kLe>},
    {"==", {{"other"}, 1}, Compares<CompareOp::kEq>},
    {">", {{"other"}, 1}, Compares<CompareOp::kGt>},
    {">=", {{"other"}, 1}, Compares<CompareOp::kGe>},
    {"boolean", {}, Holds<IsBoolean>},
    {"callable", {}, Holds<IsCallable>},
    {"defined", {}, Holds<IsDefined>},
    {"divisibleby", {{"num"}, 1}, DivisibleBy},
    {"eq", {{"other"}, 1}, Compares<CompareOp::kEq>},
    {"equalto", {{"other"}, 1}, Compares<CompareOp::kEq>},
    {"escaped", {}, Holds<IsEscaped>},
    {"even", {}, Modulo2<0>},
    {"false", {}, Holds<IsFalseItself>},
    {"filter", {}, NamesFilter},
    {"float", {}, Holds<IsFloat>},
    {"ge", {{"other"}, 1}, Compares<CompareOp::kGe>},
    {"greaterthan", {{"other"}, 1}, Compares<CompareOp::kGt>},
    {"gt", {{"other"}, 1}, Compares<CompareOp::kGt>},
    {"in", {{"seq"}, 1}, Compares<CompareOp::kIn>},
    {"integer", {}, Holds<IsInteger>},
    {"iterable", {}, Holds<IsIterable>},
    {"le", {{"other"}, 1}, Compares<CompareOp::kLe>},
    {"lessthan", {{"other"}, 1}, Compares<CompareOp::kLt>},
    {"lower", {}, IsLower},
    {"lt", {{"other"}, 1}, Compares<CompareOp::kLt>},
    {"mapping", {}, Holds<IsMapping>},
    {"ne", {{"other"}, 1}, Compares<CompareOp::kNe>},
    {"none", {}, Holds<IsNone>},
    {"number", {}, Holds<IsNumber>},
    {"odd", {}, Modulo2<1>},
    {"sameas", {{"other"}, 1}, SameAs},
    {"sequence", {}, Holds<IsSequence>},
    {"string", {}, Holds<IsString>},
    {"test", {}, NamesTest},
    {"true", {}, Holds<IsTrueItself>},
    {"undefined", {}, Holds<IsUndefined>},
    {"upper", {}, IsUpper},
};
// clang-format on

}  // namespace

const Test* FindTest(std::string_view name) {
  for (const Test& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

Error NoSuchTest(std::string_view name) { return TemplateError("No test named '{}'.", name); }

Result<bool> CallTest(Runtime& runtime, std::string_view name, const Value& subject,
                      const CallArgs& args) {
  KVERN_RETURN_IF_ERROR(runtime.Step());
  const Test* const test = FindTest(name);
  if (test == nullptr) return NoSuchTest(name);
  KVERN_ASSIGN_OR_RETURN(const Args bound, Bind(name, test->signature, args));
  return test->run(runtime, subject, bound);
}

}  // namespace kvern::text::jinja
