package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A quantizer converts weights of the cpu tier before their first use. Warm or Promote convert
// them in the background in the order of use, or else the goroutine that computes does. Results
// therefore do not depend on the progress of the background. The store keeps the converted copy
// and evicts the mapped pages.
type quantizer struct {
	backend.Converter                       // nil if nothing is converted
	bytes             map[*meta.Param]int64 // size after the conversion, of each parameter to convert
	used              map[*meta.Param]int64 // Options.Known

	mu sync.Mutex // one conversion at a time, with all threads
}

func newQuantizer(root *meta.Module, binding *loader.Binding, o *Options) *quantizer {
	q := &quantizer{Converter: o.Converter, used: o.Known}
	if o.Converter != nil {
		if q.bytes = maps.Clone(o.Converted); q.bytes == nil {
			q.bytes = root.LoadedBytes(o.Converter.Format(), true)
		}
	}
	if q.exact() { // the headers are more precise than the config
		for p := range q.bytes {
			if slices.ContainsFunc(binding.Tensors(p), func(t loader.BoundTensor) bool {
				return t.Tensor.DType != meta.BFloat16 || t.Transposed || t.Quant != nil
			}) {
				delete(q.bytes, p)
			}
		}
	}
	return q
}

// exact reports whether converted weights give the same bits as stored ones. Either may then be
// used.
func (q *quantizer) exact() bool { return q.Converter != nil && q.Format().Row().Exact }

// usePlain reports whether err says that an exact format does not make g smaller. g is then used
// as stored. The caller holds making.
func (s *Store) usePlain(g *segment, err error) bool {
	if !errors.Is(err, backend.ErrIncompressible) || !g.converts() {
		return false
	}
	slog.Debug("weights are used as stored", "weights", g.path, "reason", err)
	g.plain.Store(true)
	return true
}

// selects reports whether p is converted.
func (q *quantizer) selects(p *meta.Param) bool { return q.bytes[p] > 0 }

// size returns the bytes that p takes in memory.
func (q *quantizer) size(p *meta.Param) int64 {
	if n := q.used[p]; n > 0 {
		return n
	}
	if n := q.bytes[p]; n > 0 {
		return n
	}
	return p.Bytes()
}

// check rejects converted weights on other devices than the cpu.
func (q *quantizer) check(p *meta.Param, path string, device devicemap.Device) error {
	if device == devicemap.CPU || !q.selects(p) {
		return nil
	}
	return fmt.Errorf("residency: %s is on device %s; weights are converted to %v on the cpu only: give it more memory, or use the weights as they are stored",
		path, device, q.Format())
}

// converted returns the part of a converted piece, without Data, and its size in bytes.
func (q *quantizer) converted(p *stored.Piece) (backend.Part, int64, error) {
	part, size, err := q.Converted(p.Part)
	if err != nil {
		err = fmt.Errorf("%s: %w", p.Ranges[0].Tensor.Name, err)
	}
	return part, size, err
}

// convert converts r, the elements of part, with all threads. It converts again if the file
// changed meanwhile.
func (q *quantizer) convert(ctx context.Context, to []byte, r stored.Range, part *backend.Part) error {
	return r.Tensor.File.ReadUnchanged(func() error {
		data, err := r.Tensor.Bytes()
		if err != nil {
			return err
		}
		_ = r.Tensor.Advise(r.Begin, r.Size, loader.WillNeed) // only a hint
		err = q.Convert(ctx, to, data[r.Begin:r.Begin+r.Size], part)
		var fault *backend.FaultError
		switch {
		case errors.As(err, &fault):
			return unreadable(r.Tensor)
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("%s: %w", r.Tensor.Name, err)
		}
		return err
	})
}

// converts reports whether p is converted in memory before its first use.
func (s *Store) converts(p *meta.Param) bool { return s.sidecar == nil && s.quantizer.selects(p) }
