// The main function of every Google Benchmark program, whose source defines the function below.
#include <benchmark/benchmark.h>

namespace kvern {
void RegisterBenchmarks();
}  // namespace kvern

int main(int argc, char** argv) {
  kvern::RegisterBenchmarks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
