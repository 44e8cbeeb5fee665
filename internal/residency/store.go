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
	"github.com/heftai/heft/internal/residency/policy"
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

	units   []unit
	holders map[*meta.Param]*holder
	finding sync.Mutex // guards what find looks up
	buffers map[*meta.Buffer]tensor.Tensor
	stacks  map[*meta.Module]*stack

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
	recorder    *policy.Recorder

	blocks    []*hostmem.Block
	files     files
	tiers     map[devicemap.Device]int64
	bytesRead atomic.Int64
	opener    func(e *extent) (*hostmem.DirectFile, error) // s.open
	mover     *Mover
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
		holders: map[*meta.Param]*holder{},
		buffers: map[*meta.Buffer]tensor.Tensor{},
		stacks:  map[*meta.Module]*stack{},
		slabs:   map[*meta.Param]slab{},
		tiers:   map[devicemap.Device]int64{},
		files:   files{open: map[string]*hostmem.DirectFile{}},
		held:    -1,
	}
	s.opener = s.open
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
	s.listSegments()
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
	for k := range u.wants {
		if err := s.bring(&u.wants[k], u.load, slot); err != nil {
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

// bring makes the segment of w usable.
func (s *Store) bring(w *want, load int, slot []byte) error {
	g := w.segment
	w.holder.shown = g
	switch {
	case w.streamed:
		g.showSlot(slot, s.ring.loads[load].places[w.first:])
		return nil
	case g.device != devicemap.Disk:
		return s.use(g)
	case g.place == mapped:
		return nil
	}
	// A table of the disk tier: a lookup reads a few rows, and should not read what is around them.
	if err := s.makePieces(context.Background(), g.pieces); err != nil {
		return err
	}
	if g.place == inFile {
		g.advise(loader.Random)
	}
	return g.showMapped()
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
	u.unmapTables()
	s.counts.publish()
	s.resizeExperts()
	if s.copies.leave() {
		s.trim()
	}
}

// unmapTables unmaps the rows that were looked up in tables of the disk tier, so that a long run does
// not map whole tables. The page cache may keep them, so mapping them again is cheap.
func (u *unit) unmapTables() {
	for i := range u.wants {
		if w := &u.wants[i]; w.gather && w.device == devicemap.Disk {
			w.advise(loader.DontNeed)
		}
	}
}

// Parts returns the pieces of p, or of one expert's slab; see nn.Weights.
func (s *Store) Parts(p *meta.Param, expert int) []backend.Part {
	if expert >= 0 {
		return s.expertParts(p, expert)
	}
	if h := s.holders[p]; h != nil && h.shown != nil && h.shown.place != inFile {
		return h.shown.parts
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
