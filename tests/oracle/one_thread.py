"""Import this before numpy to keep its BLAS on one thread: sharing a tiny product costs more than
it saves, and much more where other tests run beside."""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
