// Package deviceweights keeps the weights of some units of a model in the memory of one device.
//
// [Weights.Add] allocates memory for a unit and reads nothing, so that a device that is too small is
// found when a model is opened. [Weights.Load] fills the memory when the unit first runs. The weights
// then stay until [Weights.Close].
//
// A [Stream] brings weights that the host has to the device while a unit runs, through rings of the
// device's memory. It reads ahead as far as the host does, and the device copies while it computes.
//
// With a [Conversion], matrices are converted on the host before they are copied, each time that a model
// is opened. A lookup table that a head shares is there as stored too.
//
// A driver never gets an address of a mapped file: a file that is cut short would fault inside the
// driver and end the process. Weights are copied to the Go heap first, where a fault is an error.
package deviceweights

import (
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// Weights are the weights of one device. They implement nn.Weights. One goroutine uses them at a time.
type Weights struct {
	memory  backend.Memory
	binding *loader.Binding
	buffer  func(*meta.Buffer) tensor.Tensor
	convert Conversion
	units   map[int]*unit
	current *unit                  // that was loaded last, which runs
	parts   map[key][]backend.Part // that are loaded
	found   map[key]*slab
	buffers map[*meta.Buffer]tensor.Tensor
	chunk   []byte
	blocks  []byte // converted, on their way to the device
	bytes   int64
	err     error
}

// A key is a parameter, or one expert of a stacked parameter.
type key struct {
	param     *meta.Param
	expert    int // -1 for a whole parameter
	converted bool
}

// A unit is the slabs that its rules read.
type unit struct {
	path   string
	slabs  []*slab
	tables map[*meta.Param]bool // lookup tables, which are not converted
	loaded bool
}

// A slab is the memory of a key.
type slab struct {
	key
	pieces []stored.Piece
	parts  []backend.Part    // of converted pieces, without memory
	memory [][]tensor.Tensor // of each range of each piece, or of each converted piece, as bytes
	loaded bool
}

// New returns weights without units. buffer returns the values of a buffer in host memory, or a zero
// tensor.
func New(memory backend.Memory, binding *loader.Binding, convert Conversion, buffer func(*meta.Buffer) tensor.Tensor) *Weights {
	return &Weights{memory: memory, binding: binding, buffer: buffer, convert: convert, units: map[int]*unit{}, parts: map[key][]backend.Part{},
		found: map[key]*slab{}, buffers: map[*meta.Buffer]tensor.Tensor{}}
}

// Add allocates memory for the parameters of modules, which are all that w has of unit i. Those of stacks are
// allocated expert by expert, of the experts for which has is true; a nil has means all. A parameter of several units
// has memory once.
func (w *Weights) Add(i int, path string, modules, stacks []*meta.Module, has func(stack *meta.Module, expert int) bool) error {
	u := &unit{path: path, tables: map[*meta.Param]bool{}}
	w.units[i] = u
	for _, root := range modules {
		for _, m := range root.Walk() {
			stacked := slices.Contains(stacks, m)
			for _, p := range m.Params {
				if m.Kind == meta.KindEmbedding {
					u.tables[p.Resolve()] = true
				}
				err := error(nil)
				if stacked {
					err = w.addStack(u, p.Resolve(), func(e int) bool { return has == nil || has(m, e) })
				} else {
					err = w.addSlab(u, w.key(u, p.Resolve(), -1))
				}
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
		}
	}
	return nil
}

func (w *Weights) addStack(u *unit, p *meta.Param, has func(expert int) bool) error {
	for e := range p.Shape[0] {
		if !has(e) {
			continue
		}
		if err := w.addSlab(u, w.key(u, p, e)); err != nil {
			return err
		}
	}
	return nil
}

// Has reports whether w has memory for one expert's slab of p.
func (w *Weights) Has(p *meta.Param, expert int) bool { return w.found[w.key(nil, p, expert)] != nil }

func (w *Weights) addSlab(u *unit, k key) error {
	s := w.found[k]
	if s == nil {
		s = &slab{key: k, pieces: w.pieces(k)}
		w.found[k] = s
		for i := range s.pieces {
			sizes, err := w.sizes(s, &s.pieces[i])
			if err != nil {
				return err
			}
			var list []tensor.Tensor
			for _, n := range sizes {
				t, err := w.memory.New(meta.Uint8, int(n))
				if err != nil {
					return err
				}
				list = append(list, t)
				w.bytes += n
			}
			s.memory = append(s.memory, list)
		}
	}
	u.slabs = append(u.slabs, s)
	return nil
}

func (w *Weights) pieces(k key) (out []stored.Piece) {
	if k.expert < 0 {
		for _, part := range w.binding.Tensors(k.param) {
			out = append(out, stored.New(part))
		}
		return out
	}
	for _, part := range w.binding.ExpertTensors(k.param, k.expert) {
		out = append(out, stored.New(part))
	}
	if out == nil {
		for _, part := range w.binding.Tensors(k.param) {
			out = append(out, stored.New(part).Slab(k.expert))
		}
	}
	return out
}

// Bytes is the memory of all units.
func (w *Weights) Bytes() int64 { return w.bytes }

// Load reads the weights of unit i, if it has not done so before. It waits for the copies. After an
// error, the next Load tries again.
func (w *Weights) Load(i int) error {
	u := w.units[i]
	if w.current = u; u == nil || u.loaded {
		return nil
	}
	for _, s := range u.slabs {
		if !s.loaded {
			if err := w.load(s); err != nil {
				return err
			}
		}
	}
	u.loaded, w.chunk, w.blocks = true, nil, nil
	return nil
}

func (w *Weights) load(s *slab) error {
	list := make([]backend.Part, len(s.pieces))
	for i := range s.pieces {
		piece := &s.pieces[i]
		if s.converted {
			if err := w.loadConverted(s, i, &list[i]); err != nil {
				return err
			}
			continue
		}
		list[i] = piece.NewPart()
		for k, r := range piece.Ranges {
			if err := r.Tensor.File.ReadUnchanged(func() error { return w.copyRange(s.memory[i][k], r) }); err != nil {
				return err
			}
			r.Tensor.File.Evict(r.Tensor.Offset+r.Begin, r.Size) // or the page cache would hold the weights as well
			stored.Place(&list[i], k, s.memory[i][k])
		}
	}
	w.parts[s.key], s.loaded = list, true
	return nil
}

// chunkBytes is the memory through which weights are copied.
const chunkBytes = 4 << 20

func (w *Weights) copyRange(to tensor.Tensor, r stored.Range) error {
	data, err := r.Tensor.Bytes()
	if err != nil {
		return err
	}
	data = data[r.Begin : r.Begin+r.Size]
	if w.chunk == nil {
		w.chunk = make([]byte, chunkBytes)
	}
	for at := 0; at < len(data); at += chunkBytes {
		n := min(chunkBytes, len(data)-at)
		if panicked := hostmem.Guard(func() { copy(w.chunk, data[at:at+n]) }); panicked != nil {
			return unreadable(r)
		}
		host := tensor.Tensor{DType: meta.Uint8, Rank: 1, Data: w.chunk[:n]}
		host.Dims[0] = n
		if err := w.memory.Copy(to.Slice(at, at+n), host); err != nil {
			return err
		}
	}
	return nil
}

// Parts returns the pieces of p, or of one expert's slab, as nn.Weights does. It returns nil for a
// parameter that Load has not read. In the unit that Load was called for last, a lookup table is as stored.
func (w *Weights) Parts(p *meta.Param, expert int) []backend.Part {
	parts := w.parts[w.key(w.current, p, expert)]
	if parts == nil {
		w.err = fmt.Errorf("deviceweights: %s is not loaded", p.Name)
	}
	return parts
}

// Err returns the error of the last Parts or Buffer that failed.
func (w *Weights) Err() error { return w.err }

// Buffer returns the values of b on the device, or a zero tensor if there are none or the device has
// no memory for them.
func (w *Weights) Buffer(b *meta.Buffer) tensor.Tensor {
	if t, ok := w.buffers[b]; ok {
		return t
	}
	host := w.buffer(b)
	if host.IsZero() {
		return host
	}
	t, err := w.memory.New(host.DType, host.Shape()...)
	if err == nil {
		err = w.memory.Copy(t, host)
	}
	if w.err = err; err != nil {
		return tensor.Tensor{}
	}
	w.buffers[b] = t
	return t
}

// WantExperts does nothing: the experts are on the device.
func (w *Weights) WantExperts(*meta.Module, []int32) {}

// HoldExperts returns the number of experts, which are on the device.
func (w *Weights) HoldExperts(_ *meta.Module, experts []int32) (int, error) { return len(experts), nil }

// Close frees the memory.
func (w *Weights) Close() {
	for _, s := range w.found {
		for _, list := range s.memory {
			for _, t := range list {
				w.memory.Free(t)
			}
		}
	}
	for _, t := range w.buffers {
		w.memory.Free(t)
	}
	w.found, w.buffers, w.parts, w.units = nil, nil, nil, nil
}
