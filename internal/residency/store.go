package residency

import (
	"context"
	"errors"
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

// A Unit is a part of the model that runs as a whole: its weights are resident together.
type Unit struct {
	Path    string
	Modules []Node        // subtrees whose parameters and buffers it reads
	Experts []Node        // stacks within them, of which it reads selected experts
	Banded  []*meta.Param // matrices that may stream in bands, in the order in which it reads them; see Options.Bands
}

// A Node is a module with its path.
type Node struct {
	Path   string
	Module *meta.Module
}

// Options configure a store.
type Options struct {
	// Arena provides the memory for weights. All stores of a process share it. nil means a new
	// one.
	Arena *hostmem.Arena
	// Mover reads the weights. All stores of a process share it. nil means a new one.
	Mover *Mover
	// Policy decides which weights stay in memory. All stores of a process share it. nil means a
	// new one.
	Policy *Policy
	// Staging is the memory for the window of units, the window of bands and the slots of experts, in
	// bytes. It is raised to the minimum: the largest unit with up to 64 MiB to read ahead, two bands,
	// and two experts.
	Staging int64
	// UnitWindow is the size of the window of units, instead of its part of Staging, in bytes. It
	// is raised to the largest unit. If the window holds only one unit, the disk waits while that
	// unit computes. 0 means the part of Staging.
	UnitWindow int64
	// Lent is the number of bytes by which ExpertBudget may exceed the experts' part of Staging.
	Lent int64
	// Keep allows KeepBudget to keep streamed weights in memory.
	Keep bool
	// Restream streams weights of the cpu tier other than experts while Budget has no room for
	// copies of them. Otherwise they are used in the mapping.
	Restream bool
	// Bands maps the matrices that stream in bands of rows to the maximum size of a band in
	// bytes. A unit reads these matrices one after another; see [Store.NextBand]. Other matrices
	// of a unit are in memory together.
	Bands map[*meta.Param]int64
	// RowGroups are the matrices of Bands that are read in the order of their halves.
	RowGroups map[*meta.Param]backend.RowGroups
	// Converter converts matrices to its format. nil means to use them as stored.
	Converter backend.Converter
	// Converted maps the matrices that Converter converts to their converted sizes. nil means all
	// that it can convert.
	Converted map[*meta.Param]int64
	// Known holds the sizes of parameters that an exact format does not make smaller as a whole;
	// see [KnownSizes].
	Known map[*meta.Param]int64
	// SidecarDir is the folder for files of converted weights. The store uses an existing file.
	// It writes one if some converted weights are on the disk tier, or if Budget has no room for
	// them. If SidecarDir is empty and NoSidecar is nil, converting weights on the disk tier is an
	// error.
	SidecarDir string
	// NoLateFile prevents the store from beginning a file when converted weights are evicted.
	// Those of an exact format are then read as stored.
	NoLateFile bool
	// NoSidecar is the reason why there can be no file of converted weights. Weights of the disk
	// tier then count as of the cpu tier: those that do not fit into Budget are converted again
	// in each pass. SidecarDir must be empty. nil means that there can be a file.
	NoSidecar error
	// Homes are the NUMA nodes of the computing threads, in order. Promoted weights are placed on
	// the node of the thread that uses their rows. nil leaves the placement to the operating
	// system.
	Homes []int
	// Rouse is called when a read has ended that a pass waits for, before the pass continues, to wake
	// the threads that will compute with its bytes. It must be safe for concurrent use. nil does
	// nothing.
	Rouse func()
	// Skip reports which parameters the caller manages itself. nil means none.
	Skip func(*meta.Param) bool
	// Away reports which experts of a stack the caller manages itself. nil means none.
	Away func(stack *meta.Module, expert int) bool
	// Lender is a store that shares weights with this one: those for which Borrows is true and
	// that Lender has as stored on its cpu tier. Both stores must have the same units and must be
	// used from one goroutine. Close Lender last.
	Lender  *Store
	Borrows func(*meta.Param) bool
	// WholeStacks streams all experts of the disk tier with their unit, in the order of use. They
	// stay until Release. It suits passes of many tokens, which use all experts.
	WholeStacks bool
}

// A Store holds the weights of one model. One goroutine at a time acquires units, reads their
// weights and releases them; this is the computing goroutine. Statistics, budgets, Warm and
// Promote are safe for concurrent use. After Close only statistics may be read.
type Store struct {
	binding *loader.Binding
	devices devicemap.Map
	paths   map[*meta.Param]string
	tiers   map[devicemap.Device]int64 // bytes of weights

	// From Options.
	keep     bool // Keep, if there is something to lend
	homes    []int
	arena    *hostmem.Arena
	folder   string // SidecarDir
	skip     func(*meta.Param) bool
	away     func(*meta.Module, int) bool
	whole    bool // WholeStacks
	restream bool
	mover    *Mover
	policy   *Policy
	// convertsAgain is set if NoSidecar is: weights that do not fit into memory are converted in
	// each pass.
	convertsAgain bool

	// The units and segments, fixed by New.
	units      []unit
	activity   []*unitActivity // of each unit
	holders    map[*meta.Param]*holder
	buffers    map[*meta.Buffer]tensor.Tensor
	stacks     map[*meta.Module]*stack
	stackOrder []*stack
	slabs      map[*meta.Param]slab
	finding    sync.Mutex // guards the pieces that find looks up
	borrowed   borrowed

	// The streams.
	stream     *stream        // of units; nil if none is, or will be, streamed
	window     *hostmem.Block // of the stream
	order      order
	bands      bands     // of matrices
	streams    []*stream // stream and the bands' stream, if they exist
	displacing displacing
	files      files
	opener     func(e *extent) (*hostmem.DirectFile, error) // s.open
	rouse      func()                                       // Options.Rouse
	bytesRead  atomic.Int64

	// Experts. The slices belong to the computing goroutine.
	experts      *expertSlots
	heldExperts  []int   // load numbers of held experts of the disk tier
	requested    []int   // load numbers of the selected experts that were not held yet, in order
	later        []int32 // scratch of HoldExperts
	segments     []int32 // the experts of requested, by index in their stack
	guesses      guesses
	recorder     *policy.Recorder
	expertTarget atomic.Int64 // number of slots that experts should use; 0 means all

	// The running unit.
	held        int              // its index, between Acquire and Release, or -1
	failed      error            // why one of its segments is missing
	plainBlocks []*hostmem.Block // memory of its parts; see plainParts
	acquired    atomic.Uint64    // calls of Acquire
	touched     atomic.Int64     // the policy's clock at the last Acquire
	counts      counts

	// Copies in memory, made in the background.
	warm     progress
	promoter promoter
	copies   copies

	// Conversion.
	quantizer *quantizer
	sidecar   *sidecar // nil if nothing is converted, or everything in memory
	late      late
}

// New assigns the parameters of units to tiers by devices. It reads and maps no weight. It
// allocates the windows and slots of the disk tier from the arena. root is the whole module tree.
func New(root *meta.Module, units []Unit, binding *loader.Binding, devices devicemap.Map, o Options) (*Store, error) {
	s := &Store{
		binding: binding, devices: devices,
		keep: o.Keep && o.Lent > 0, homes: o.Homes, arena: o.Arena, skip: o.Skip, away: o.Away, whole: o.WholeStacks, restream: o.Restream,
		rouse: o.Rouse,
		paths: map[*meta.Param]string{}, folder: o.SidecarDir, convertsAgain: o.NoSidecar != nil,
		holders: map[*meta.Param]*holder{},
		buffers: map[*meta.Buffer]tensor.Tensor{},
		stacks:  map[*meta.Module]*stack{},
		slabs:   map[*meta.Param]slab{},
		tiers:   map[devicemap.Device]int64{},
		files:   files{open: map[string]*hostmem.DirectFile{}},
		held:    -1,
		bands:   bands{sizes: o.Bands, rowGroups: o.RowGroups, open: -1},

		borrowed: borrowed{from: o.Lender, takes: o.Borrows},
	}
	s.opener = s.open
	if s.arena == nil {
		s.arena = new(hostmem.Arena)
	}
	if s.mover = o.Mover; s.mover == nil {
		s.mover = new(Mover)
	}
	s.mover.open()
	if s.policy = o.Policy; s.policy == nil {
		s.policy = new(Policy)
	}
	s.copies.raised, s.copies.all = make(chan struct{}, 1), &s.policy.copied
	s.quantizer = newQuantizer(root, binding, &o)
	for path, p := range root.AllParams() {
		if p.SameAs == nil {
			s.paths[p] = path
		}
	}
	if o.NoSidecar != nil {
		s.late.warned.Store(true) // the caller logs it
	}
	if err := s.startSidecar(units, &o); err != nil {
		s.Close()
		return nil, err
	}
	s.skipKnown()
	loads, err := s.sort(units)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.listSegments()
	if err := s.startStreams(loads, &o); err != nil {
		s.Close()
		return nil, err
	}
	s.policy.add(s)
	return s, nil
}

// Acquire makes the weights of unit i usable until Release. Weights of the disk tier may still be
// in flight: Parts waits for them. Only one unit can be acquired at a time.
func (s *Store) Acquire(i int) error {
	if s.held >= 0 {
		return fmt.Errorf("residency: unit %s is still held", s.units[s.held].Path)
	}
	s.acquired.Add(1)
	s.activity[i].runs.Add(1)
	s.policy.touch(s)
	s.copies.enter(i)
	err := s.enterLender(i)
	if err == nil {
		if err = s.acquire(i); err != nil {
			s.leaveLender()
		}
	}
	if err != nil {
		s.copies.leave()
		return err
	}
	s.held, s.failed = i, nil
	return nil
}

// acquire loads unit i. It retries if weights of the unit are evicted meanwhile and then have to
// stream.
func (s *Store) acquire(i int) error {
	u := &s.units[i]
	if s.stream != nil {
		if _, ok := s.order.enter(i); !ok {
			return fmt.Errorf("residency: %s is not in the order of units", u.Path)
		}
	}
	for again := s.restreams(i); ; again = true {
		if again {
			if err := s.setStreams(); err != nil {
				return err
			}
		}
		if err := s.bringAll(u); !errors.Is(err, errDisplaced) {
			return err
		}
	}
}

// bringAll makes the segments of u usable, or records that they are being read.
func (s *Store) bringAll(u *unit) error {
	if s.stream != nil {
		if err := s.stream.begin(s.order.visit); err != nil {
			return fmt.Errorf("residency: %s: %w", u.Path, err)
		}
	}
	if s.bands.stream != nil {
		s.bands.stream.prefetch(Next)
	}
	for k := range u.wants {
		if err := s.bring(&u.wants[k]); err != nil {
			if s.stream != nil {
				s.stream.release(s.order.visit)
			}
			return err
		}
	}
	return nil
}

// arrive waits for a segment that is being read.
func (s *Store) arrive(g *segment) error {
	w := g.on
	if w.from != nil {
		g.parts, g.side = w.fromParts, w.from
	}
	k := s.stream.first[s.order.visit] + w.group
	window, err := s.stream.hold(k)
	if err != nil {
		return fmt.Errorf("residency: %s: %w", g.path, err)
	}
	g.showSlot(window, s.stream.groups[k].places[w.first:])
	return nil
}

// bring makes the segment of w usable, or records that it is being read.
func (s *Store) bring(w *want) error {
	g := w.segment
	if w.holder != nil {
		w.holder.shown = g
	}
	switch {
	case w.streamed:
		if g.device == devicemap.CPU && g.copied.Load() != nil {
			return s.useCounted(g) // since the streams were set
		}
		if g.place, g.on = coming, w; w.bands.count > 0 {
			g.place = inBands
		}
		return nil
	case g.device != devicemap.Disk && !(w.gather && g.displaced.Load()):
		if w.gather {
			return s.use(g)
		}
		return s.useCounted(g)
	case g.place == mapped:
		return nil
	}
	// A table that is not kept in memory: a lookup reads a few rows, and should not read adjacent
	// rows.
	if err := s.ensurePieces(context.Background(), g.pieces); err != nil {
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
	i := s.held
	u := &s.units[i]
	s.held = -1
	if s.stream != nil {
		s.stream.release(s.order.visit)
	}
	s.endBand()
	freeBlocks(&s.plainBlocks)
	s.releaseExperts()
	u.unmapTables()
	s.leaveLender()
	s.counts.publish()
	s.resizeExperts()
	if s.copies.leave() {
		s.trim()
	}
	s.policy.release(s, i == len(s.units)-1)
}

// unmapTables unmaps the rows that were looked up in tables that are not kept, so that a long run
// does not map whole tables. The page cache may keep them, so mapping them again is cheap.
func (u *unit) unmapTables() {
	for i := range u.wants {
		if w := &u.wants[i]; w.gather && (w.device == devicemap.Disk || w.displaced.Load()) {
			w.advise(loader.DontNeed)
		}
	}
}

// Parts returns the pieces of p, or of one expert's slab; see nn.Weights.
func (s *Store) Parts(p *meta.Param, expert int) []backend.Part {
	if expert >= 0 {
		return s.expertParts(p, expert)
	}
	if g := s.borrowed.segments[p]; g != nil {
		return g.parts
	}
	h := s.holders[p]
	if h == nil || h.shown == nil || h.shown.place == inFile {
		return nil
	}
	switch h.shown.place {
	case inBands:
		return s.band(h.shown.on.bands.first)
	case coming:
		if s.failed = s.arrive(h.shown); s.failed != nil {
			return nil
		}
	}
	return s.plainParts(h.shown.shownPieces(), h.shown.parts, &s.plainBlocks)
}

// Err returns the reason why Parts returned nil. It returns nil if the unit does not have the
// parameter.
func (s *Store) Err() error { return s.failed }

// Buffer returns a buffer's values as float32, or a zero tensor if the checkpoint does not store
// it.
func (s *Store) Buffer(b *meta.Buffer) tensor.Tensor { return s.buffers[b] }

// Close stops the readers and frees the memory. The checkpoint stays open.
func (s *Store) Close() {
	s.policy.remove(s)
	s.warm.stop()
	s.promoter.stop()
	for _, st := range s.streams {
		st.close()
	}
	if s.experts != nil {
		s.experts.close()
	}
	if s.bands.window != nil {
		_ = s.bands.window.Release() // released nowhere else
	}
	if s.window != nil {
		_ = s.window.Release() // released nowhere else
	}
	s.mover.close()
	s.freeAll()
	s.files.close()
	freeBlocks(&s.plainBlocks)
	freeBlocks(&s.bands.plainBlocks)
	s.side().close()
}

// files holds the shards that are open for direct reads. Each is opened at its first use.
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

// expertKey returns the map key of one expert of a stack.
func expertKey(path string, e int) string { return path + "." + strconv.Itoa(e) }
