package model

import (
	"fmt"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// MaxMemory limits the memory for frozen parameters, in bytes. Parameters beyond the limit stream
// from disk in each sweep: forwards, and backwards in reverse order. Backward then computes the
// units again, as with Options.Recompute. Losses and gradients stay bitwise the same. Without a
// limit, frozen parameters are used in the checkpoint's memory mapping, in the page cache.
//
// The limit includes neither activations nor trained parameters. If it is below the minimum, the
// model uses the minimum: see [Model.FrozenMemory].
func MaxMemory(bytes int64) Option { return func(o *options) { o.place.limit = max(bytes, 1) } }

// DeviceMap places the frozen parameters that m names on the cpu or the disk, like serve's
// --device-map. The others fill the limit.
func DeviceMap(m devicemap.Map) Option { return func(o *options) { o.place.pins = m } }

// placement configures where frozen parameters go.
type placement struct {
	limit int64 // 0 for none
	pins  devicemap.Map
	packs bool // see PackOnce
}

// set reports whether parameters may stream.
func (p *placement) set() bool { return p.limit > 0 || p.pins.Len() > 0 }

// A placed is a parameter or an expert, which is placed individually.
type placed struct {
	path   string
	bytes  int64
	packs  bool  // bfloat16, so that it can be packed
	units  []int // units that it streams in; none for a table, whose rows are read in the mapping
	device devicemap.Device
	pinned bool
}

// plan describes where the frozen parameters of a model go.
type plan struct {
	devices           devicemap.Map
	resident, minimum int64 // bytes in memory, and the minimum
	window            int64 // bytes of the memory through which the others stream
	packed            int64 // bytes reserved for packed weights of a unit
}

// plan decides what stays in memory within the limit. Each streamed byte costs the same, because
// all are read once per sweep. So plan keeps the parameters that make the largest streamed unit
// small, because the window must have room for it.
func (p *placement) plan(b *base) (plan, error) {
	all, err := p.list(b)
	if err != nil {
		return plan{}, err
	}
	units := make([][]*placed, len(b.program.Units))
	for i := range all {
		for _, u := range all[i].units {
			units[u] = append(units[u], &all[i])
		}
	}
	for _, list := range units {
		slices.SortStableFunc(list, func(a, b *placed) int { return int(min(max(b.bytes-a.bytes, -1), 1)) })
	}
	limit := p.limit
	if limit == 0 {
		limit = 1 << 60
	}
	packed := p.packing(units)
	limit -= packed
	best, least := choose(units, limit)
	d := divide(units, best.most)
	d.fill(all, limit)
	out := plan{resident: d.resident, minimum: least, window: d.window(limit), packed: packed}
	var entries []devicemap.Entry
	for i := range all {
		switch at := &all[i]; {
		case at.device != "":
		case p.limit > 0:
			at.device = devicemap.Disk // a table; the page cache holds rows
		default:
			at.device = devicemap.CPU
		}
		entries = append(entries, devicemap.Entry{Path: all[i].path, Device: all[i].device})
	}
	out.devices = devicemap.NewMap(entries...)
	return out, nil
}

// packing returns the memory for packed weights of a unit: the rest of the limit after a window
// with room to read ahead, at most both layouts of the largest block. It saves more time than
// additional resident weights.
func (p *placement) packing(units [][]*placed) int64 {
	if !p.packs || p.limit == 0 || !cpu.KeepsPacked() {
		return 0
	}
	least, largest := p.limit, int64(0)
	for _, most := range sizes(units) {
		d := divide(units, most)
		least = min(least, d.resident+d.roomy())
	}
	for _, list := range units[:len(units)-1] {
		block := int64(0)
		for _, q := range list {
			if q.packs {
				block += q.bytes
			}
		}
		largest = max(largest, block)
	}
	return min(2*largest, p.limit-least)
}

// choose returns the division within the limit that reads the least, and the minimum memory. It
// prefers windows with room to read ahead. Without room, the disk is idle while a unit computes.
func choose(units [][]*placed, limit int64) (best division, least int64) {
	fits, tightest := -1, -1
	var all []division
	for i, most := range sizes(units) {
		d := divide(units, most)
		all = append(all, d)
		if d.resident+d.largest <= limit && (fits < 0 || d.better(&all[fits], limit)) {
			fits = i
		}
		if tightest < 0 || d.resident+d.largest < all[tightest].resident+all[tightest].largest {
			tightest = i
		}
	}
	if fits < 0 {
		fits = tightest
	}
	return all[fits], all[tightest].resident + all[tightest].largest
}

// list returns the frozen parameters. Stacks are divided into experts.
func (p *placement) list(b *base) ([]placed, error) {
	var all []placed
	index := map[string]int{}
	add := func(path string, bytes int64, unit int, table, packs bool) error {
		i, ok := index[path]
		if !ok {
			i, index[path] = len(all), len(all)
			at := placed{path: path, bytes: bytes, packs: packs}
			if p.pins.Len() > 0 {
				at.device, at.pinned = p.pins.Device(path)
			}
			if at.pinned && at.device != devicemap.CPU && at.device != devicemap.Disk {
				return fmt.Errorf("model: device map: got device %s for %s, want cpu or disk", at.device, path)
			}
			all = append(all, at)
		}
		if !table && !slices.Contains(all[i].units, unit) {
			all[i].units = append(all[i].units, unit)
		}
		return nil
	}
	paths := map[*meta.Param]string{}
	for path, q := range b.meta.Root.AllParams() {
		if q.SameAs == nil {
			paths[q] = path
		}
	}
	for i, u := range b.program.Units {
		experts := map[*meta.Module]bool{}
		for _, n := range u.Experts {
			if b.stacks[n.Module] {
				experts[n.Module] = true
				each, bytes := b.expertBytes(n.Module)
				for e := range each {
					if err := add(fmt.Sprintf("%s.%d", n.Path, e), bytes, i, false, false); err != nil {
						return nil, err
					}
				}
			}
		}
		for _, n := range b.modules(u) {
			for _, m := range n.Module.Walk() {
				if experts[m] {
					continue
				}
				for _, q := range m.Params {
					if q = q.Resolve(); !b.frozen[q] {
						continue
					}
					if err := add(paths[q], b.bytesOf(q), i, m.Kind == meta.KindEmbedding, b.packable(q)); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return all, nil
}

// expertBytes returns the number of experts of a stack, and the bytes of one.
func (b *base) expertBytes(m *meta.Module) (count int, bytes int64) {
	for _, q := range m.Params {
		if q = q.Resolve(); b.frozen[q] {
			count = q.Shape[0]
			bytes += b.bytesOf(q)
		}
	}
	return count, bytes/int64(max(count, 1)) + 2*pageBytes*int64(len(m.Params))
}

// pageBytes is the alignment of direct reads.
const pageBytes = 4096

// bytesOf returns the maximum memory for a parameter that is read with direct I/O.
func (b *base) bytesOf(p *meta.Param) (n int64) {
	if b.binding == nil {
		return p.Bytes() + 2*pageBytes
	}
	for _, t := range b.binding.Tensors(p) {
		piece := stored.New(t)
		n += piece.Size + 2*pageBytes*int64(len(piece.Ranges))
	}
	return n
}

// packable reports whether a parameter is a bfloat16 matrix, which can be packed.
func (b *base) packable(p *meta.Param) bool {
	if b.binding == nil || len(p.Shape) != 2 {
		return false
	}
	tensors := b.binding.Tensors(p)
	return len(tensors) > 0 && tensors[0].Quant == nil && tensors[0].Tensor.DType == meta.BFloat16
}

// A division describes how much stays in memory if no unit streams more than most bytes.
type division struct {
	most, largest  int64   // limit of a unit's streamed bytes, and the largest unit's
	resident, read int64   // bytes in memory, and bytes read per sweep
	units          []int64 // streamed bytes of each unit, without units that stream nothing
}

// roomy returns the memory with which each unit can be read while the previous one computes.
func (d *division) roomy() int64 {
	most := d.largest
	for i := 1; i < len(d.units); i++ {
		most = max(most, d.units[i-1]+d.units[i])
	}
	return min(most, residency.Window(d.largest))
}

// window returns the memory that units stream through within the limit.
func (d *division) window(limit int64) int64 { return max(min(d.roomy(), limit-d.resident), d.largest) }

// waits returns the bytes per sweep that cannot be read ahead, because the window has no room until
// the previous unit has run.
func (d *division) waits(limit int64) (n int64) {
	window, roomy := d.window(limit), d.roomy()
	for i := 1; i < len(d.units); i++ {
		n += max(min(d.units[i-1]+d.units[i], roomy)-window, 0)
	}
	return n
}

// better reports whether d waits for fewer bytes than other or, if these are equal, reads less.
func (d *division) better(other *division, limit int64) bool {
	mine, others := d.waits(limit), other.waits(limit)
	return mine < others || mine == others && d.read < other.read
}

// divide places everything that is not pinned. Of each unit, the largest pieces stream, up to most
// bytes.
func divide(units [][]*placed, most int64) division {
	d := division{most: most}
	seen := map[*placed]bool{}
	for _, list := range units {
		streamed := int64(0)
		for _, p := range list {
			if p.pinned && p.device == devicemap.Disk {
				streamed += p.bytes
			}
		}
		for _, p := range list {
			if !p.pinned && !seen[p] {
				if p.device = devicemap.CPU; streamed+p.bytes <= most {
					p.device = devicemap.Disk
				}
			}
			switch {
			case p.device == devicemap.Disk && !p.pinned:
				streamed += p.bytes
			case p.device == devicemap.CPU && !seen[p]:
				d.resident += p.bytes
			}
			seen[p] = true
		}
		if d.largest = max(d.largest, streamed); streamed > 0 {
			d.units = append(d.units, streamed)
		}
		d.read += streamed
	}
	return d
}

// fill keeps further pieces that fit in memory, the largest first.
func (d *division) fill(all []placed, limit int64) {
	order := make([]*placed, 0, len(all))
	for i := range all {
		if p := &all[i]; p.device == devicemap.Disk && !p.pinned && len(p.units) > 0 {
			order = append(order, p)
		}
	}
	slices.SortStableFunc(order, func(a, b *placed) int { return int(min(max(b.bytes-a.bytes, -1), 1)) })
	for _, p := range order {
		if d.resident+d.roomy()+p.bytes <= limit {
			p.device = devicemap.CPU
			d.resident += p.bytes
		}
	}
}

// mostSizes limits the number of sizes that plan tries.
const mostSizes = 256

// sizes returns candidates for the streamed bytes of a unit: nothing, its largest piece, its two
// largest pieces, and so on. If there are many, it returns a selection.
func sizes(units [][]*placed) []int64 {
	out := []int64{0}
	for _, list := range units {
		sum := int64(0)
		for _, p := range list {
			sum += p.bytes
			out = append(out, sum)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if n := len(out); n > mostSizes {
		some := make([]int64, 0, mostSizes)
		for i := range mostSizes {
			some = append(some, out[i*(n-1)/(mostSizes-1)])
		}
		out = some
	}
	return out
}

// open makes a store for b's parameters within the limit.
func (p *placement) open(b *base) (*residency.Store, plan, error) {
	if !p.set() {
		s, err := b.newStore(devicemap.NewMap(devicemap.Entry{Path: "", Device: devicemap.CPU}), 0)
		if err == nil && b.converter == nil {
			s.Budget(0) // read in the mapping
		}
		return s, plan{}, err
	}
	out, err := p.plan(b)
	if err != nil {
		return nil, out, err
	}
	s, err := b.newStore(out.devices, out.window)
	if err == nil && p.limit == 0 {
		s.Budget(0)
	}
	if err == nil && p.limit > 0 {
		s.Budget(out.resident)
	}
	return s, out, err
}

// LeastFrozen returns the minimum memory, in bytes, for the parameters of m if all of them are
// frozen and stream from disk: the Minimum of [Model.FrozenMemory] with [MaxMemory]. Without a
// binding, it counts the dtypes of m's config. It reads no weights.
func LeastFrozen(m *meta.Model, binding *loader.Binding) (int64, error) {
	program, err := nn.Compile(m.Root)
	if err != nil {
		return 0, fmt.Errorf("model: %w", err)
	}
	frozen := map[*meta.Param]bool{}
	for _, p := range m.Root.AllParams() {
		frozen[p.Resolve()] = true
	}
	b := &base{meta: m, program: program, binding: binding, frozen: frozen, place: placement{limit: 1}}
	b.findStacks()
	out, err := b.place.plan(b)
	return out.minimum, err
}
