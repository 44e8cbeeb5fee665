// AVX-512: gradients of layers with a state.
#define WIDTH 64
#define F(name) avx512##name
#include "wide.h"
#include "deltagrad.h"
