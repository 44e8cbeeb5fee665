package cpu_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestDotsOfCodesHaveTheBitsOfABatch: products of up to 32 tokens with rows of codes equal those in a batch of 100,
// whose kernels unpack the weights, also of rows and columns inside a weight.
func TestDotsOfCodesHaveTheBitsOfABatch(t *testing.T) {
	const in, out = 288, 150
	r := rand.New(rand.NewPCG(28, 12))
	for _, variant := range kernels.Names() {
		b := open(t, 2, variant)
		for _, c := range []struct {
			format  meta.QuantFormat
			columns int
			zeros   bool
		}{
			{meta.QuantInt4Packed, 32, false}, {meta.QuantInt4Packed, 96, true}, {meta.QuantInt4Packed, in, false}, {meta.QuantInt8, in, false}, {meta.QuantInt8, 32, true}, {meta.QuantInt8Packed, in, false}, {meta.QuantInt8Packed, 32, true}, {meta.QuantBnbInt8, in, false},
			{meta.QuantNVFP4, 16, false}, {meta.QuantNVFP4ModelOpt, 16, false}, {meta.QuantMXFP4Packed, 32, false}, {meta.QuantBnbNF4, 32, false}, {meta.QuantBnbFP4, 96, false},
			{meta.QuantInt4Packed, 24, false}, // groups that the kernels do not take
		} {
			whole := rowsOfCodes(t, r, c.format, in, out, c.columns, c.zeros)
			part := whole
			part.Row, part.RowStep, part.Dims = 3, 2, [tensor.MaxRank]int{70, in}
			for _, w := range []backend.Matrix{whole, part} {
				x := random(t, r, 100, w.InCols())
				batch := product(t, b, x, w)
				for _, tokens := range []int{1, 2, 8, 15, 32} {
					few := product(t, b, x.Slice(0, tokens), w)
					for i, v := range few.F32() {
						if math.Float32bits(v) != math.Float32bits(batch.F32()[i]) {
							t.Fatalf("%s, %v in groups of %d, %d tokens: result %d is %v, in a batch %v", variant, c.format, c.columns, tokens, i, v, batch.F32()[i])
						}
					}
				}
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// rowsOfCodes is a random weight of out rows of in codes as they are stored, with scales that give finite results.
func rowsOfCodes(t *testing.T, r *rand.Rand, format meta.QuantFormat, in, out, columns int, zeros bool) backend.Matrix {
	t.Helper()
	random := func(n int, d meta.DType, value func(b []byte)) tensor.Tensor {
		data := make([]byte, int(d.Bytes(1))*n)
		for i := range n {
			value(data[int(d.Bytes(1))*i:])
		}
		out, err := tensor.Of(data, d, n)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	any := func(b []byte) { b[0] = byte(r.Uint32()) }
	groups, bits := out*((in+columns-1)/columns), 4
	q := &backend.Quant{Quant: &meta.Quant{Format: format, Rows: 1, Columns: columns}, Width: in}
	switch format {
	case meta.QuantNVFP4, meta.QuantNVFP4ModelOpt, meta.QuantMXFP4Packed: // numbers of ordinary size
		q.Scales = random(groups, meta.Uint8, func(b []byte) { b[0] = byte(0x60 + r.IntN(0x1e)) })
		q.Global = random(1, meta.Float32, func(b []byte) { binary.LittleEndian.PutUint32(b, math.Float32bits(3)) })
	default:
		q.Scales = random(groups, meta.Float32, func(b []byte) { binary.LittleEndian.PutUint32(b, math.Float32bits(r.Float32())) })
	}
	switch format {
	case meta.QuantInt8, meta.QuantBnbInt8:
		bits = 8
		if zeros {
			q.Zeros = random(groups, meta.Uint8, any)
		}
	case meta.QuantInt8Packed:
		bits = 8
		if zeros {
			q.Zeros = random((out+3)/4*4*groups/out, meta.Uint8, any)
		}
	case meta.QuantInt4Packed:
		if zeros {
			q.Zeros = random((out+7)/8*4*groups/out, meta.Uint8, any)
		}
	case meta.QuantBnbNF4, meta.QuantBnbFP4:
		state := []byte(`{"blocksize": ` + map[int]string{32: "32", 96: "96"}[columns] + `, "dtype": "bfloat16"}`)
		q.Global = tensor.Tensor{Data: state, DType: meta.Uint8, Rank: 1, Dims: [tensor.MaxRank]int{len(state)}}
	}
	codes := random(in*out*bits/8, meta.Uint8, any)
	return backend.Matrix{Tensor: tensor.Tensor{DType: meta.Uint8, Rank: 2, Dims: [tensor.MaxRank]int{out, in}, Data: codes.Data}, Quant: q}
}
