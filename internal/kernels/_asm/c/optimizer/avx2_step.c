// AVX2: steps of optimizers.
#define WIDTH 32
#define F(name) avx2##name
#include "optimizer.h"
