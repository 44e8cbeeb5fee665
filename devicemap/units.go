package devicemap

import (
	"fmt"
	"math"
	"strconv"

	"github.com/heftai/heft/meta"
)

// A unit is what a plan places as a whole: a module of a no-split class, a module without
// children, or a tensor of a split module. Parts of it that are units of their own are excluded:
// its experts, and modules that the user pinned.
type unit struct {
	path     string
	load            // on its device; in memory until it is placed
	onDisk   load   // if it streams
	dense    int64  // size in memory of the part that is read whole
	passage         // of dense, when it streams from the disk
	pin      Device // "" if the policy may choose
	whole    int    // for a part: index of the unit to which it belongs; otherwise -1
	block    bool
	hostOnly bool  // see Policy.HostOnly
	kv       int64 // see Policy.UnitKV
	home     int   // if it only holds tied parameters: the unit with the values; otherwise -1
	at       Device
	matrices []matrix // that may be on another device than the rest, the largest first
}

// A load is the size of weights in memory or on the disk, in bytes. The two differ if weights are converted when they
// are loaded.
type load struct {
	// bytes is the size of the weights. reads is the size of the part that one token needs: one row of a table, the
	// selected experts of an MoE layer, all of anything else. expertBytes and expertReads are the experts' parts of
	// these.
	bytes, reads             int64
	expertBytes, expertReads int64
	again                    int64 // part of reads that repeats others, of tensors that later units also read
	expert                   int64 // size of one expert; experts stream one by one
}

// A share describes the part of a tensor that one token reads.
type share struct {
	of      float64
	lookup  bool  // single rows, from the mapping
	experts int32 // the module that stacks the experts to which this parameter belongs; 0 if there is none
	band    int64 // bytes of the largest band in which it can stream, if any
	again   int   // number of additional times it is read
}

// A divider divides a model into units.
type divider struct {
	*table
	noSplit  map[string]bool
	bands    map[*meta.Param]int64
	pins     Map
	parents  map[string]bool // paths whose single experts are pinned
	cut      bool            // experts are parts
	shares   map[int32]share
	owner    map[int32]int // tied tensor → unit
	units    []unit
	warnings []string
}

// divide returns the units of a model in tree order, parts after the unit to which they belong.
// If cut is set, the experts of a block are a part of it.
func divide(t *table, p Policy, pins Map, cut bool) *divider {
	d := &divider{table: t, noSplit: map[string]bool{}, bands: p.Bands, pins: pins, parents: map[string]bool{}, cut: cut,
		shares: t.shareTensors(), owner: map[int32]int{}}
	for _, class := range p.NoSplit {
		d.noSplit[class] = true
	}
	for path := range pins.All() {
		if parent, _, _, ok := children(path); ok {
			d.parents[parent] = true
		}
	}
	d.collect(0)
	d.followTies()
	return d
}

// shareTensors returns the tensors that are not read whole.
func (t *table) shareTensors() map[int32]share {
	shares := map[int32]share{}
	for i := range t.nodes {
		n := &t.nodes[i]
		if n.module == nil {
			continue
		}
		if spec, ok := n.module.Spec.(*meta.MoESpec); ok && spec != nil && spec.TopK > 0 {
			for _, name := range spec.Stacks() {
				e, ok := t.find(meta.Join(n.path, name))
				if count := t.stack(e); ok && count > 0 {
					for c := e + 1; c < t.nodes[e].end; c++ {
						of := float64(min(spec.TopK, count)) / float64(count)
						shares[c] = share{of: of, experts: e}
					}
				}
			}
		}
		if n.module.Kind == meta.KindEmbedding || n.module.Kind == meta.KindNone && n.module.Class == "Embedding" {
			for c := int32(i) + 1; c < n.end; c++ {
				if p := t.nodes[c].param; p != nil && len(p.Shape) == 2 && p.Shape[0] > 0 {
					shares[c] = share{of: 1 / float64(p.Shape[0]), lookup: true}
				}
			}
		}
	}
	for _, g := range t.ties {
		t.shareTies(g.nodes, shares)
	}
	t.shareRuns(shares)
	return shares
}

// shareTies computes how often a token reads a tensor that has several names. It is read whole
// under each name, except for lookups and names of modules that are not read.
func (t *table) shareTies(names []int32, shares map[int32]share) {
	uses := 0
	for _, n := range names {
		if m := t.nodes[t.moduleOf(n)].module; shares[n].lookup {
			delete(shares, n)
		} else if m == nil || !m.Unread() {
			uses++
		}
	}
	for _, n := range names {
		if s, stacked := shares[n]; !stacked && !t.nodes[n].repeated && uses > 1 {
			s.again = uses - 1
			shares[n] = s
		}
	}
}

// shareRuns counts the reads of blocks that a token passes several times.
func (t *table) shareRuns(shares map[int32]share) {
	root := t.nodes[0].module
	if root == nil {
		return
	}
	spec, ok := root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return
	}
	for path, uses := range spec.Uses(root) {
		i, ok := t.find(path)
		for c := i + 1; ok && c < t.nodes[i].end; c++ {
			if t.nodes[c].module == nil {
				s := shares[c]
				s.again += uses - 1
				shares[c] = s
			}
		}
	}
}

// collect adds the units at and below node i.
func (d *divider) collect(i int32) {
	n := &d.nodes[i]
	switch {
	case n.module != nil && i+1 == n.end: // nothing to place
	case n.module == nil || d.childless(i) || d.noSplit[n.module.Class] || d.stack(i) > 0:
		d.add(i)
	default:
		for c := i + 1; c < n.end; c = d.nodes[c].end {
			d.collect(c)
		}
	}
}

// add adds node i as a unit, and its parts.
func (d *divider) add(i int32) {
	n := &d.nodes[i]
	u := unit{path: n.path, whole: -1, home: -1}
	u.pin, _ = d.pins.Device(n.path)
	u.block = n.module != nil && d.noSplit[n.module.Class]
	whole := len(d.units)
	d.units = append(d.units, u)
	tensors := 0
	var dense []int32
	for c := i; c < n.end; c++ {
		switch {
		case d.nodes[c].module == nil:
			tensors++
			part := d.part(whole, d.keyOf(whole, d.nodes[c].path))
			d.addTensor(part, c)
			if part == whole && !d.shares[c].lookup && d.shares[c].experts == 0 {
				dense = append(dense, c)
			}
		case d.stack(c) > 0:
			tensors++
			d.addStack(whole, c)
			c = d.nodes[c].end - 1
		}
	}
	switch {
	case tensors == 0: // modules without a tensor
		d.units = d.units[:whole]
	case d.cut && u.pin == "":
		d.findMatrices(whole, dense)
	}
}

func (d *divider) addTensor(unit int, c int32) {
	s := d.shares[c]
	s.band = d.bandOf(c)
	d.units[unit].weigh(d.nodes[c].size, d.nodes[c].onDisk, s)
	d.owner[c] = unit
}

// bandOf returns the bytes of the largest band in which tensor c can stream, or 0 if it streams
// whole.
func (d *divider) bandOf(c int32) int64 {
	if p := d.nodes[c].param; p != nil {
		return d.bands[p.Resolve()]
	}
	return 0
}

// keyOf returns the entry that applies to path within a unit: the unit's, or that of a pin below
// it.
func (d *divider) keyOf(whole int, path string) Entry {
	u := &d.units[whole]
	if k, length, ok := d.pins.match(path); ok && length > len(u.path) {
		return d.pins.entries[k]
	}
	return Entry{u.path, u.pin}
}

// part returns the index of the unit, among whole and its parts, with this key.
func (d *divider) part(whole int, key Entry) int {
	for i := whole; i < len(d.units); i++ {
		if d.units[i].path == key.Path {
			return i
		}
	}
	d.units = append(d.units, unit{path: key.Path, pin: key.Device, whole: whole, home: -1})
	return len(d.units) - 1
}

// addStack adds the experts of stack c, as a whole if no single expert is pinned. Pins on its
// tensors apply only if there is no other pin; the first one then applies to all.
func (d *divider) addStack(whole int, c int32) {
	path := d.nodes[c].path
	key := d.keyOf(whole, path)
	if key.Device == "" {
		if first := d.keyOf(whole, d.nodes[c+1].path); first.Device != "" {
			key = Entry{path, first.Device}
		} else if d.cut && d.shares[c+1].experts > 0 {
			key.Path = path
		}
	}
	if !d.parents[path] {
		part := d.part(whole, key)
		for p := c + 1; p < d.nodes[c].end; p++ {
			d.addTensor(part, p)
		}
		if d.shares[c+1].experts > 0 {
			d.units[part].oneExpert(&d.nodes[c], d.stack(c))
		}
		return
	}
	for e := range d.stack(c) {
		key := key
		if k, length, ok := d.pins.match(meta.Join(path, strconv.Itoa(e))); ok && length > len(path) {
			key = d.pins.entries[k]
		}
		d.addExpert(d.part(whole, key), c, e)
	}
}

// addExpert adds expert e of stack c. Expert 0 gets the remainder of the division.
func (d *divider) addExpert(unit int, c int32, e int) {
	count := d.stack(c)
	d.units[unit].oneExpert(&d.nodes[c], count)
	slab := func(size float64) float64 {
		one := math.Floor(size / float64(count))
		if e == 0 {
			return size - one*float64(count-1)
		}
		return one
	}
	for p := c + 1; p < d.nodes[c].end; p++ {
		s, ok := d.shares[p]
		if !ok {
			s.of = 1
		}
		d.units[unit].weigh(slab(d.nodes[p].size), slab(d.nodes[p].onDisk), share{of: s.of, experts: c})
		d.owner[p] = unit
	}
}

// oneExpert records the size of an expert, with all of its matrices, of a stack of count experts.
func (u *unit) oneExpert(stack *node, count int) {
	u.expert = max(u.expert, int64(stack.size)/int64(count))
	u.onDisk.expert = max(u.onDisk.expert, int64(stack.onDisk)/int64(count))
}

// weigh adds a tensor of the given bytes in memory and on the disk, or the slab of one expert.
func (u *unit) weigh(bytes, onDisk float64, s share) {
	u.load.add(bytes, s)
	u.onDisk.add(onDisk, s)
	if !s.lookup && s.experts == 0 {
		u.dense += int64(bytes)
		u.passage.weigh(int64(onDisk), s.band)
	}
}

// add adds a tensor of the given size.
func (l *load) add(bytes float64, s share) {
	l.bytes += int64(bytes)
	switch {
	case s.lookup:
		l.reads += int64(math.Ceil(bytes * s.of))
	case s.experts > 0:
		reads := int64(math.Ceil(bytes*s.of)) * int64(1+s.again)
		l.reads += reads
		l.expertBytes, l.expertReads = l.expertBytes+int64(bytes), l.expertReads+reads
	default:
		again := int64(s.again) * int64(bytes)
		l.reads, l.again = l.reads+int64(bytes)+again, l.again+again
	}
}

// settle puts the unit on a device. On the disk it has its size there.
func (u *unit) settle(d Device) {
	if u.at = d; d == Disk {
		u.load = u.onDisk
	}
}

// followTies binds units that hold tied parameters to the unit that holds the values. A pin of
// any of the names applies to it, and a unit without values of its own follows it.
func (d *divider) followTies() {
	for _, g := range d.ties {
		first := -1
		for _, n := range g.nodes {
			if !d.nodes[n].repeated {
				first = d.owner[n]
			}
		}
		for k, n := range g.nodes {
			u, f := d.owner[n], &d.units[first]
			if u == first {
				continue
			}
			switch pin := d.units[u].pin; {
			case pin == "" || pin == f.pin:
			case f.pin == "":
				f.pin = pin
			default:
				d.warnings = append(d.warnings, fmt.Sprintf("%s is one tensor with a weight of %s and stays with it on %s",
					g.names[k], f.path, f.pin))
			}
			if d.units[u].bytes == 0 && f.bytes > 0 {
				d.units[u].home = first
			}
		}
	}
}
