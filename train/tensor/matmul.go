package tensor

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
)

const (
	tileTokens = 384 // rows of the result in a unit
	tileCols   = 64  // columns of a packed panel, as wide as the kernel's tile
	tileKeys   = 128 // terms of a panel: 32 KiB of float32, which a first-level cache holds
	sumKeys    = 32  // terms of a partial sum of a convolution
)

// panel is one thread's packed operands.
type panel struct {
	values  [4 * tileKeys * tileCols]byte
	weights [tileTokens * tileKeys]float32
}

// stored views v as the kernels' stored matrix of rows of stride elements.
func stored(v []float32, stride int) mat.Weights {
	w := mat.Weights{Stride: 4 * stride, Format: mat.Float32}
	if len(v) > 0 {
		w.Data = unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
	}
	return w
}

// skip drops the first elements of a stored matrix: row r and then column c.
func skip(w mat.Weights, r, c int) mat.Weights {
	w.Data = w.Data[r*w.Stride+c*w.Format.Size():]
	return w
}

func skipFloats(m mat.Floats, r, c int) mat.Floats {
	m.V = m.V[r*m.Stride+c:]
	return m
}

// mixUnits adds y[t][c] += Σ_j p(t, j)·v[j][c] with p(t, j) = p.V[t·p.Stride + j·step], on the
// caller's thread. It serves convolutions, whose rounding errors decide between neighbours in
// pools. It adds partial sums of sumKeys terms, which keeps rounding errors small.
func (tp *Tape) mixUnits(y, p mat.Floats, step int, v mat.Weights, keys, tokens, cols int) {
	if cols == 0 || keys == 0 {
		return
	}
	part := make([]float32, min(tokens, tileTokens)*cols)
	for t := 0; t < tokens; t += tileTokens {
		n := min(tileTokens, tokens-t)
		for j := 0; j < keys; j += sumKeys {
			sum := part[:n*cols]
			clear(sum)
			weights := mat.Floats{V: p.V[t*p.Stride+j*step:], Stride: p.Stride}
			tp.mixUnit(dense(sum, cols), weights, step, skip(v, j, 0), min(sumKeys, keys-j), n, cols)
			for i := range n {
				addTo(y.V[(t+i)*y.Stride:][:cols], sum[i*cols:(i+1)*cols])
			}
		}
	}
}

// mixUnit computes one thread's part. It packs operands that are read repeatedly with a stride,
// because strides that are powers of two map to few cache lines.
func (tp *Tape) mixUnit(y, p mat.Floats, step int, v mat.Weights, keys, tokens, cols int) {
	pack := tp.panels.Get().(*panel)
	defer tp.panels.Put(pack)
	size := v.Format.Size()
	for j := 0; j < keys; j += tileKeys {
		nj := min(tileKeys, keys-j)
		weights := mat.Floats{V: p.V[j*step:], Stride: p.Stride}
		if step != 1 {
			weights = packWeights(pack.weights[:], weights, step, nj, tokens)
		}
		for c := 0; c < cols; c += tileCols {
			nc := min(tileCols, cols-c)
			tile := skip(v, j, c)
			if tokens > 24 {
				packed := mat.Weights{Data: pack.values[:], Stride: nc * size, Format: v.Format}
				for i := range nj {
					copy(packed.Data[i*packed.Stride:(i+1)*packed.Stride], tile.Data[i*v.Stride:])
				}
				tile = packed
			}
			tp.set.GEMV.Mix(&gemv.RowSum{Y: skipFloats(y, 0, c), P: weights, Step: 1, V: tile, Keys: nj, Tokens: tokens, Cols: nc})
		}
	}
}

// packWeights writes p(t, j) by rows of t.
func packWeights(dst []float32, p mat.Floats, step, keys, tokens int) mat.Floats {
	const lines = 16 // rows of dst that are written at a time
	for begin := 0; begin < tokens; begin += lines {
		end := min(begin+lines, tokens)
		for j := range keys {
			at := j*step + begin*p.Stride
			for t := begin; t < end; t++ {
				dst[t*tileKeys+j] = p.V[at]
				at += p.Stride
			}
		}
	}
	return mat.Floats{V: dst, Stride: tileKeys}
}
