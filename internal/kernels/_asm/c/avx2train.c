// AVX2: kernels of training.
#define WIDTH 32
#define F(name) avx2##name
#include "train.h"
