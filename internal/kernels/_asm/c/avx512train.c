// AVX-512: kernels of training.
#define WIDTH 64
#define F(name) avx512##name
#include "train.h"
