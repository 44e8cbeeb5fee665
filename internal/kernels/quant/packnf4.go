package quant

import "math"

// nf4Bounds holds the bounds at which bitsandbytes rounds to the next entry of nf4: a number
// larger than bound i has entry i+1 or a later one.
var nf4Bounds = [15]float32{
	-0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984, -0.13791173323988914,
	-0.045525018125772476, 0.03979014977812767, 0.1202552504837513, 0.2035212516784668, 0.2920137718319893, 0.3893125355243683,
	0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
}

// PackNF4 quantises x, an even number of elements that share a scale, and stores their codes at
// dst, two in a byte, the first in the high half. It returns the scale, which is the largest
// magnitude, and false if a value is not finite.
func PackNF4(dst []byte, x []float32) (scale float32, ok bool) {
	for _, v := range x {
		if v-v != 0 {
			return 0, false
		}
		scale = max(scale, float32(math.Abs(float64(v))))
	}
	by := float32(0)
	if scale > 0 {
		by = 1 / scale
	}
	for i := range len(x) / 2 {
		dst[i] = nf4Code(x[2*i]*by)<<4 | nf4Code(x[2*i+1]*by)
	}
	return scale, true
}

func nf4Code(v float32) byte {
	low, high := 0, len(nf4Bounds)
	for low < high {
		if mid := (low + high) / 2; v > nf4Bounds[mid] {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return byte(low)
}
