package cpu

import (
	"testing"

	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/meta"
)

// TestFormatTablesAgree: every format in meta's table has kernels, whose blocks have the same size, and those that
// Heft converts to can be interleaved.
func TestFormatTablesAgree(t *testing.T) {
	formats := meta.QuantFormats()
	if len(formats) != int(quant.Packings)-1 {
		t.Errorf("got %d packings for %d formats", quant.Packings-1, len(formats))
	}
	for _, f := range formats {
		p, ok := quant.Named(f.String())
		if !ok {
			t.Errorf("%v: no kernels", f)
			continue
		}
		if p.BlockBytes() != int(f.BlockBytes()) || p.BlockBytes() > 0 && p.BlockColumns() != f.BlockColumns() {
			t.Errorf("%v: kernels have %d bytes for %d columns, the table %d for %d", f, p.BlockBytes(), p.BlockColumns(), f.BlockBytes(), f.BlockColumns())
		}
		if f.Row().Convert && !p.Interleaves() {
			t.Errorf("%v: weights are converted to it, and its rows cannot be interleaved", f)
		}
	}
}
