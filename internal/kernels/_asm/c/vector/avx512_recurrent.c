// AVX-512: steps of layers with a state.
#define WIDTH 64
#define F(name) avx512##name
#include "recurrent.h"
