package cpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// floatPart is a matrix of random float32 values.
func floatPart(t *testing.T, rows, cols int) (*backend.Part, []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(rows*cols)))
	src := make([]byte, 4*rows*cols)
	for i := range rows * cols {
		binary.LittleEndian.PutUint32(src[4*i:], math.Float32bits(float32(rng.NormFloat64())))
	}
	return &backend.Part{Matrix: backend.Matrix{Tensor: tensor.Tensor{DType: meta.Float32, Rank: 2, Dims: [tensor.MaxRank]int{rows, cols}}}}, src
}

// TestConvertToRows: a converter to rows has the blocks of the usual one, which interleaves them, and products of both
// matrices have the same bits.
func TestConvertToRows(t *testing.T) {
	for _, format := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
		const rows, cols = 2*quant.InterleavedRows + 3, conversionChunk + 96
		bands, err := NewConverter(format, 2, "")
		if err != nil {
			t.Fatal(err)
		}
		p, src := floatPart(t, rows, cols)
		b, err := New(Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var want []float32
		for _, c := range []*Converter{bands, bands.InRows()} {
			part, size, err := c.Converted(*p)
			if err != nil {
				t.Fatal(err)
			}
			part.Data = make([]byte, size)
			if err := c.Convert(t.Context(), part.Data, src, p); err != nil {
				t.Fatal(err)
			}
			var got []float32
			for _, tokens := range []int{1, 3, 40} {
				x, y := tensor.Floats(make([]float32, tokens*cols), tokens, cols), tensor.Floats(make([]float32, tokens*rows), tokens, rows)
				for i, v := range x.F32() {
					x.F32()[i] = v + float32(i%37)/7
				}
				b.Linear(y, x, part.Matrix, tensor.Tensor{})
				row := tensor.Floats(make([]float32, cols), 1, cols)
				b.Embed(row, part.Matrix, []int32{rows - 1}, 1)
				if err := b.Sync(); err != nil {
					t.Fatal(err)
				}
				got = append(append(got, y.F32()...), row.F32()...)
			}
			if want == nil {
				want = got
			} else if !slices.Equal(got, want) {
				t.Errorf("%v in rows gives other results than interleaved", format)
			}
		}
	}
}

// TestConvertInPartsOfRows: neither the number of threads nor a division at multiples of RowGroup changes
// a converted byte.
func TestConvertInPartsOfRows(t *testing.T) {
	for _, format := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
		one, err := NewConverter(format, 1, "")
		if err != nil {
			t.Fatal(err)
		}
		three, _ := NewConverter(format, 3, "")
		p, src := floatPart(t, 5*quant.InterleavedRows+3, 96)
		part, size, err := one.Converted(*p)
		if err != nil || part.Quant.Height != p.Dims[0] || part.Quant.Format != format {
			t.Fatalf("Converted: %+v, %v", part, err)
		}
		want, got := make([]byte, size), make([]byte, size)
		if err := one.Convert(t.Context(), want, src, p); err != nil {
			t.Fatal(err)
		}
		each := int(size) / p.Dims[0]
		for first := 0; first < p.Dims[0]; first += 2 * three.RowGroup() {
			rows := *p
			rows.Dims[0] = min(2*three.RowGroup(), p.Dims[0]-first)
			if err := three.Convert(t.Context(), got[first*each:][:rows.Dims[0]*each], src[first*96*4:][:rows.Dims[0]*96*4], &rows); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%v: parts of rows are converted to other bytes than the whole matrix", format)
		}
	}
}

// TestConvertFails covers values, sizes, dtypes and contexts that a conversion rejects.
func TestConvertFails(t *testing.T) {
	c, err := NewConverter(meta.QuantQ8, 2, "")
	if err != nil {
		t.Fatal(err)
	}
	p, src := floatPart(t, 20, 64)
	_, size, _ := c.Converted(*p)
	dst := make([]byte, size)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Convert(ctx, dst, src, p); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled conversion: got %v", err)
	}
	if err := c.Convert(t.Context(), dst[1:], src, p); err == nil {
		t.Error("a destination that is too small: got no error")
	}
	binary.LittleEndian.PutUint32(src[4*70:], math.Float32bits(float32(math.Inf(1))))
	if err := c.Convert(t.Context(), dst, src, p); err == nil || !strings.Contains(err.Error(), "between elements 64 and 128") {
		t.Errorf("an infinity: got %v", err)
	}
	odd := *p
	odd.Dims[1] = 63
	if _, _, err := c.Converted(odd); err == nil {
		t.Error("rows of 63 values: got no error")
	}
	if _, err := NewConverter(meta.QuantMXFP4, 1, ""); err == nil {
		t.Error("a converter to mxfp4: got no error")
	}
}
