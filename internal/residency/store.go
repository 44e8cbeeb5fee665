package residency

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A Unit is a part of the model that runs as a whole: all its weights are resident together.
type Unit struct {
	Path    string
	Modules []Node // subtrees whose parameters and buffers it reads
	Experts []Node // stacks within them, from which it reads selected experts
}

// A Node is a module and its path.
type Node struct {
	Path   string
	Module *meta.Module
}

// Options size a store.
type Options struct {
	Ledger *hostmem.Ledger
	// Mover reads the weights. It belongs to the process. nil means one for this store.
	Mover *Mover
	// Staging is the memory for the rings in bytes. It is raised to the minimum, Least.
	Staging int64
	// Quantize is QuantQ8 or QuantQ4 to convert matrices to that format, or QuantNone to use them
	// as stored. The conversion uses Threads threads and the kernels of Variant; "" means the best
	// one.
	Quantize meta.QuantFormat
	Threads  int
	Variant  string
	// SidecarDir is the folder for files of converted weights. The store uses an existing file, and
	// writes one if some converted weights are on the disk tier. If SidecarDir is empty, converting
	// weights on the disk tier is an error.
	SidecarDir string
	// Homes are the memory nodes of the computing threads, in order. Promoted weights are placed on
	// the node of the thread that uses their rows. nil leaves the placement to the system.
	Homes []int
}

// A Store holds the weights of one model.
type Store struct {
	binding *loader.Binding
	devices devicemap.Map
	homes   []int
	ledger  *hostmem.Ledger
	paths   map[*meta.Param]string

	units     []unit
	entries   map[*meta.Param]*entry
	converted map[*meta.Param]*entry // parameters in the sidecar
	buffers   map[*meta.Buffer]tensor.Tensor
	stacks    map[*meta.Module]*stack

	ring     *ring // of units; nil if no unit is streamed
	streamed []int // units with a load, in order; the index is the ring's id
	experts  *ring // of experts
	order    []int // scratch of ahead

	stackOrder  []*stack
	slabs       map[*meta.Param]slab
	heldExperts []int   // ring ids of held experts of the disk tier
	requested   []int   // ring ids of the selected experts that were not held yet, in order
	later       []int32 // scratch of HoldExperts
	segments    []int32 // the experts of requested, by number in their stack

	blocks    []*hostmem.Block
	files     files
	tiers     map[devicemap.Device]int64
	bytesRead atomic.Int64
	opener    func(e *extent) (*hostmem.DirectFile, error) // s.open
	mover     *Mover
	request   int64         // size of a read
	held      int           // unit between Acquire and Release, or -1
	acquired  atomic.Uint64 // calls of Acquire
	warm      progress
	promoter  promoter
	copies    copies

	counts counts

	expertTarget atomic.Int64 // slots that the experts' ring should use; 0 means all

	quantizer *quantizer
	sidecar   *sidecar // nil if nothing is converted, or everything in memory
}

// New assigns the parameters of units to tiers by devices. It reads and maps nothing, and allocates
// the rings of the disk tier from memory. root is the whole tree.
func New(root *meta.Module, units []Unit, binding *loader.Binding, devices devicemap.Map, o Options) (*Store, error) {
	s := &Store{
		binding: binding, devices: devices, homes: o.Homes, ledger: o.Ledger,
		paths:   map[*meta.Param]string{},
		entries: map[*meta.Param]*entry{}, converted: map[*meta.Param]*entry{},
		buffers: map[*meta.Buffer]tensor.Tensor{},
		stacks:  map[*meta.Module]*stack{},
		slabs:   map[*meta.Param]slab{},
		tiers:   map[devicemap.Device]int64{},
		files:   files{open: map[string]*hostmem.DirectFile{}},
		held:    -1,
	}
	s.warm.changed.L, s.opener = &s.warm.mu, s.open
	if s.mover = o.Mover; s.mover == nil {
		s.mover = new(Mover)
	}
	s.mover.open()
	s.copies.raised = make(chan struct{}, 1)
	var err error
	if s.quantizer, err = newQuantizer(root, o); err != nil {
		return nil, err
	}
	for path, p := range root.AllParams() {
		if p.SameAs == nil {
			s.paths[p] = path
		}
	}
	if err := s.startSidecar(units, o.SidecarDir); err != nil {
		s.Close()
		return nil, err
	}
	loads, err := s.sort(units)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.listMovables()
	if err := s.startRings(loads, o.Staging); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// startRings allocates at least two slots of the size of the largest load of each kind.
func (s *Store) startRings(loads []*load, staging int64) error {
	var largest int64
	for _, l := range loads {
		largest = max(largest, l.slot)
	}
	expert, streamed := s.largestExpert()
	unitSlots, expertSlots := slots(staging, largest, len(loads), expert, streamed)
	if unitSlots > 0 {
		buffers, err := s.buffersOf(unitSlots, largest)
		if err != nil {
			return err
		}
		s.ring = newRing(loads, buffers, s.mover, s)
	}
	if expertSlots > 0 {
		n := s.expertLoads()
		s.later, s.requested = make([]int32, 0, n), make([]int, 0, n)
		buffers, err := s.buffersOf(expertSlots, expert)
		if err != nil {
			return err
		}
		s.experts = newRing(make([]*load, n), buffers, s.mover, s)
		s.experts.decide(s.expertCache(expertSlots))
	}
	return nil
}

// slots divides the staging memory. Each ring in use gets two slots. The rest goes to experts,
// which are often reused, or to units if all of them fit.
func slots(staging, largest int64, loads int, expert int64, streamed int) (units, experts int) {
	if loads > 0 {
		units = min(2, loads)
		staging -= int64(units) * largest
	}
	if streamed > 0 {
		return units, min(streamed, max(2, int(staging/expert)))
	}
	if loads > 0 {
		units = min(loads, units+max(0, int(staging/largest)))
	}
	return units, experts
}

func (s *Store) buffersOf(n int, size int64) ([][]byte, error) {
	buffers := make([][]byte, n)
	for i := range buffers {
		b, err := hostmem.Alloc(s.ledger, hostmem.Staging, int(size))
		if err != nil {
			return nil, fmt.Errorf("residency: ring of %d slots of %d bytes: %w", n, size, err)
		}
		s.blocks = append(s.blocks, b)
		buffers[i] = b.Bytes()
	}
	return buffers, nil
}

// ahead returns the loads in the order in which they are needed, from unit i on and around the end
// to the next pass. i's own load comes first.
func (s *Store) ahead(i int) []int {
	s.order = s.order[:0]
	start := 0
	for start < len(s.streamed) && s.streamed[start] < i {
		start++
	}
	for k := range s.streamed {
		s.order = append(s.order, (start+k)%len(s.streamed))
	}
	return s.order
}

// Acquire makes the weights of unit i resident until Release. One unit can be acquired at a time.
func (s *Store) Acquire(i int) error {
	if s.held >= 0 {
		return fmt.Errorf("residency: unit %s is still held", s.units[s.held].Path)
	}
	s.acquired.Add(1)
	s.copies.enter(i)
	u := &s.units[i]
	var slot []byte
	if u.load >= 0 {
		s.ring.request(s.ahead(i), Next)
		var err error
		if slot, err = s.ring.keep(u.load); err != nil {
			s.copies.leave()
			return fmt.Errorf("residency: %s: %w", u.Path, err)
		}
	}
	for _, w := range u.wants {
		if err := s.bring(&w, u.load, slot); err != nil {
			if u.load >= 0 {
				s.ring.release(u.load)
			}
			s.copies.leave()
			return err
		}
	}
	s.held = i
	return nil
}

// bring sets the entry's parts to the slot, to the checkpoint's mapping, or to a copy.
func (s *Store) bring(w *want, load int, slot []byte) error {
	e := w.entry
	if w.convert {
		s.counts.use(e.converted.Load() != nil)
		made, err := s.convertEntry(context.Background(), e)
		if err == nil {
			e.parts = made.parts
		}
		return err
	}
	if !w.gather {
		s.counts.stall(s.warm.await(e))
	}
	w.shown.parts = e.stored
	if !w.streamed && !e.taken {
		if made := e.promoted.Load(); made != nil {
			made.takeUp(e.pieces, func(k int) *backend.Part { return &e.stored[k] })
			e.taken, e.present = true, true
		}
	}
	if !w.streamed {
		s.counts.use(e.taken)
	}
	if !w.streamed && e.present {
		return nil
	}
	if !w.streamed {
		if err := s.makePieces(context.Background(), e.pieces); err != nil {
			return err
		}
	}
	first := w.first
	for k := range e.pieces {
		p := &e.pieces[k]
		if w.streamed {
			inSlot(p, &e.stored[k], slot, s.ring.loads[load].places[first:])
			first += len(p.Ranges)
		} else if err := p.InPlace(&e.stored[k]); err != nil {
			return err
		}
	}
	e.present = !w.streamed
	return nil
}

// Release releases the weights of the acquired unit.
func (s *Store) Release() {
	if s.held < 0 {
		return
	}
	u := &s.units[s.held]
	s.held = -1
	if u.load >= 0 {
		s.ring.release(u.load)
	}
	s.releaseExperts()
	u.letGo()
	s.counts.publish()
	s.resizeExperts()
	if s.copies.leave() {
		s.trim()
	}
}

// letGo unmaps the rows that were looked up in tables of the disk tier, so that a long run does not
// map whole tables. The page cache may keep them, so mapping them again is cheap.
func (u *unit) letGo() {
	for i := range u.wants {
		w := &u.wants[i]
		if !w.gather || w.device != devicemap.Disk {
			continue
		}
		for k := range w.pieces {
			for _, r := range w.pieces[k].Ranges {
				_ = r.Tensor.Advise(r.Begin, r.Size, loader.DontNeed) // only a hint
			}
		}
	}
}

// Parts returns the pieces of p, or of one expert's slab; see nn.Weights.
func (s *Store) Parts(p *meta.Param, expert int) []backend.Part {
	if expert >= 0 {
		return s.expertParts(p, expert)
	}
	if e := s.entries[p]; e != nil {
		return e.parts
	}
	return nil
}

// Buffer returns a buffer's values as float32, or a zero tensor if the checkpoint does not store
// it.
func (s *Store) Buffer(b *meta.Buffer) tensor.Tensor { return s.buffers[b] }

// Close stops the readers and frees the rings. The checkpoint stays open.
func (s *Store) Close() {
	s.warm.stop()
	s.promoter.stop()
	for _, r := range []*ring{s.ring, s.experts} {
		if r != nil {
			r.close()
		}
	}
	if s.experts != nil { // the ledger counts what the blocks free
		s.ledger.Add(hostmem.Staging, int64(s.experts.withheld)*s.expertSlot())
		s.experts.withheld = 0
	}
	for _, b := range s.blocks {
		_ = b.Release() // released nowhere else
	}
	s.blocks = nil
	s.mover.close()
	s.freeAll()
	s.files.close()
	s.sidecar.close()
}

// files are the shards opened for direct reads, each at first use.
type files struct {
	mu   sync.Mutex
	open map[string]*hostmem.DirectFile
}

// get opens the file at path and, if verify is not nil, checks it.
func (f *files) get(path string, verify func() error) (*hostmem.DirectFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.open[path]; d != nil {
		return d, nil
	}
	d, err := hostmem.OpenDirect(path)
	if err != nil {
		return nil, err
	}
	if verify != nil {
		if err := verify(); err != nil {
			_ = d.Close() // opened for reading
			return nil, err
		}
	}
	f.open[path] = d
	return d, nil
}

func (f *files) close() {
	for _, d := range f.open {
		_ = d.Close() // opened for reading
	}
	f.open = map[string]*hostmem.DirectFile{}
}

// expertKey is the map key of one expert of a stack.
func expertKey(path string, e int) string { return path + "." + strconv.Itoa(e) }
