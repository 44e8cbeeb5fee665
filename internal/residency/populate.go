package residency

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/heftai/heft/loader"
)

// touchPages maps pages of t by reading a byte of each.
func touchPages(t *loader.Tensor, off, n int64) error {
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	err = reading(t, func() {
		var sum byte
		for i := off; i < off+n; i += blockSize {
			sum += data[i]
		}
		touched.Store(uint32(sum))
	})
	if err != nil {
		return fmt.Errorf("residency: %w", err)
	}
	return nil
}

// touched prevents the compiler from removing the reads of touchPages.
var touched atomic.Uint32

// populate loads the pages of g's mapping into memory.
func (s *Store) populate(ctx context.Context, g *segment) error {
	if g.gathered {
		g.readWhole()
	}
	for k := range g.pieces {
		for _, r := range g.pieces[k].Ranges {
			for off := int64(0); off < r.Size; off += warmStep {
				if err := ctx.Err(); err != nil {
					return err
				}
				n := min(warmStep, r.Size-off)
				if r.Tensor.Advise(r.Begin+off, n, loader.Populate) == nil {
					continue
				}
				_ = r.Tensor.Advise(r.Begin+off, n, loader.WillNeed) // only a hint
				if err := touchPages(r.Tensor, r.Begin+off, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
