package devicemap

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/heftai/heft/meta"
)

// DeviceMemory is an amount of memory on a device. Amounts may be fractions, because dtypes of
// less than a byte are counted exactly.
type DeviceMemory struct {
	Device Device
	Bytes  float64
	// Warning describes a size that is probably not what the user meant. It is usually empty.
	Warning string
}

// Options are the arguments of InferAutoDeviceMap. With the zero value only the disk has memory.
type Options struct {
	// MaxMemory is the memory of each device, in any order. Devices that are not listed are not
	// used, except for the disk, which has no limit. nil means Available.
	MaxMemory []DeviceMemory
	// Available is the memory of the machine.
	Available []DeviceMemory
	// NoSplitModuleClasses are the classes of modules that must stay on one device.
	NoSplitModuleClasses []string
	// DType is the type that floating-point weights are loaded as, by a name that DTypeByteSize
	// accepts. "" keeps the type of each tensor. It only makes sizes smaller, never larger.
	DType string
	// SpecialDTypes are the types of single tensors by path. They override DType and the tensor's
	// own type.
	SpecialDTypes map[string]string
	// OffloadBuffers also offloads the buffers of offloaded modules, so that no GPU needs room
	// for them.
	OffloadBuffers bool
	// FallbackAllocation searches for a later module that fits before a device is left empty.
	FallbackAllocation bool
}

// InferredMap is the result of InferAutoDeviceMap.
type InferredMap struct {
	// Raw is the map in the order of placement. In Map, modules on the same device are grouped.
	Raw, Map Map
	// BuffersOffGPU is the size of the buffers of offloaded modules if no GPU has room for
	// them, otherwise 0.
	BuffersOffGPU float64
	// Minimum is, for each device that was left empty, the memory that the first module would
	// have needed.
	Minimum []DeviceMemory
	// Warnings are messages for the user.
	Warnings []string
	// Own reports that Accelerate fails on this input and the result is Heft's. Heft compares
	// ties by whole names and does not move placed modules.
	Own bool
}

// InferAutoDeviceMap places the modules below root on devices, in the order of the tree, as
// Accelerate's infer_auto_device_map does. It fills GPUs by number, then the CPU, then the disk,
// and never returns to an earlier device.
//
// The first GPU and the CPU reserve room for the largest layer that is not placed yet. A layer is
// a module without children or of a no-split class. A module that does not fit is split into its
// parameters and children, unless it is a layer; its direct buffers then have no entry. Tied
// parameters are counted at their first name, and placing a module also places the modules that
// hold the other names.
//
// InferAutoDeviceMap returns an error for unknown devices and dtypes, and for trees that contain
// themselves.
func InferAutoDeviceMap(root *meta.Module, o Options) (*InferredMap, error) {
	t, memory, err := o.measure(root)
	if err != nil {
		return nil, err
	}
	return infer(t, memory, o)
}

// measure returns the table of root's sizes as Accelerate counts them, and the memory in order of
// devices.
func (o *Options) measure(root *meta.Module) (*table, []DeviceMemory, error) {
	sizes, err := accelerateSizing(o.DType, o.SpecialDTypes)
	if err != nil {
		return nil, nil, err
	}
	memory, err := MaxMemory(o.MaxMemory, o.Available)
	if err != nil {
		return nil, nil, err
	}
	t, err := newTable(root, sizes)
	return t, memory, err
}

// infer is InferAutoDeviceMap for a table, with the memory in order.
func infer(t *table, memory []DeviceMemory, o Options) (*InferredMap, error) {
	s := newSolver(t, memory, o)
	if err := s.run(); err != nil {
		s = newSolver(t, memory, o)
		s.tolerant = true
		if err := s.run(); err != nil {
			return nil, err
		}
	}
	return s.result(o), nil
}

// errTie reports that a tied parameter's module is not among those left to place.
var errTie = errors.New("devicemap: a tied parameter's module is not to be found")

// A slot is a device while it is being filled.
type slot struct {
	device  Device
	limit   float64 // +Inf for the disk
	main    bool    // reserves room for the largest layer left
	used    float64
	buffers float64 // size of the buffers of entries placed here
}

// A solver is one run of InferAutoDeviceMap.
type solver struct {
	*table
	slots    []slot
	at       int     // the slot being filled
	todo     []int32 // nodes that are not placed; the last one is next
	noSplit  map[string]bool
	tolerant bool
	// fallbacks is the number of nodes that may still be brought forward. It ends the search if
	// two tied modules keep replacing each other.
	fallbacks int

	// The largest layer left when it was last searched, and the layers of this size that were not
	// reached since.
	largest     float64
	isLargest   []bool
	largestLeft int

	placed  []int32 // in order
	on      []int32 // slot of each node of placed
	minimum []DeviceMemory
}

func newSolver(t *table, memory []DeviceMemory, o Options) *solver {
	s := &solver{table: t, noSplit: map[string]bool{}, isLargest: make([]bool, len(t.nodes))}
	if o.FallbackAllocation {
		s.fallbacks = len(t.nodes)
	}
	for _, class := range o.NoSplitModuleClasses {
		s.noSplit[class] = true
	}
	for _, m := range memory {
		s.slots = append(s.slots, slot{device: m.Device, limit: m.Bytes})
	}
	if n := len(memory); n == 0 || memory[n-1].Device != Disk {
		s.slots = append(s.slots, slot{device: Disk})
	}
	s.slots[len(s.slots)-1].limit = math.Inf(1)
	s.markMain()
	s.todo = t.top()
	slices.Reverse(s.todo)
	s.findLargest(true)
	return s
}

// markMain marks the devices on which offloaded layers run: mps, or else the first GPU and the
// CPU.
func (s *solver) markMain() {
	i := slices.IndexFunc(s.slots, func(d slot) bool { return d.device == MPS })
	if i >= 0 {
		s.slots[i].main = true
		return
	}
	for i := range s.slots {
		_, gpu := s.slots[i].device.GPU()
		s.slots[i].main = gpu && i == 0 || s.slots[i].device == CPU
	}
}

// run places everything.
func (s *solver) run() error {
	for len(s.todo) > 0 {
		next := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		if err := s.step(next); err != nil {
			return err
		}
	}
	return nil
}

// step places node i on the current device, or splits it or a node tied to it, or advances to the
// next device and leaves i to the next step.
func (s *solver) step(i int32) error {
	s.takeUp(i)
	d := &s.slots[s.at]
	kept := 0.0
	if d.main {
		kept = s.largest
	}
	room := d.limit - kept
	size := s.nodes[i].size
	holders, tied, err := s.tied(i, s.todo, s.todo)
	if err != nil {
		return err
	}
	if d.used+tied <= room {
		s.place(i, holders, tied)
		return nil
	}
	if len(holders) > 0 && d.used+size <= room && s.splitHolder(i, holders) {
		return nil
	}
	if d.used+size >= room && s.splittable(i) {
		s.push(s.split(i)...)
		s.findLargest(false)
		return nil
	}
	if d.used == 0 && s.fallbacks > 0 && d.device != Disk {
		found, err := s.fallBack(i, d.limit-max(s.largest, tied))
		if found || err != nil {
			return err
		}
	}
	if d.used == 0 {
		s.minimum = append(s.minimum, DeviceMemory{Device: d.device, Bytes: tied + kept})
	}
	d.used += kept
	s.at++
	s.push(i)
	return nil
}

// push puts nodes before all unplaced nodes. The first of them is next.
func (s *solver) push(nodes ...int32) {
	for _, n := range slices.Backward(nodes) {
		s.todo = append(s.todo, n)
	}
}

// place places node i and the modules tied to it on the current device.
func (s *solver) place(i int32, holders []int32, size float64) {
	d := &s.slots[s.at]
	d.used += size
	s.assign(i)
	for _, h := range holders {
		if at := slices.Index(s.todo, h); at >= 0 {
			s.todo = slices.Delete(s.todo, at, at+1)
			s.assign(h)
		}
	}
	if s.nodes[i].module != nil {
		d.buffers += s.bufferBytes(i)
	}
}

func (s *solver) assign(i int32) {
	s.placed = append(s.placed, i)
	s.on = append(s.on, int32(s.at))
}

// splittable reports whether node i may be split.
func (s *solver) splittable(i int32) bool {
	return !s.childless(i) && !s.noSplit[s.nodes[i].module.Class]
}

// splitHolder splits the first of the tied modules that can be split, and reports whether there
// was one. Node i then has to be placed again.
func (s *solver) splitHolder(i int32, holders []int32) bool {
	for _, h := range holders {
		if !s.splittable(h) {
			continue
		}
		at := slices.Index(s.todo, h)
		s.splitInPlace(at)
		s.push(i)
		s.findLargest(false)
		return true
	}
	return false
}

// tied returns the modules in list that hold the parameters tied to those of node i, one entry
// per parameter, and the size of i with them. If a module is not in list, the tolerant solver
// searches rest, and skips it if it is not there either; otherwise tied returns errTie.
func (s *solver) tied(i int32, list, rest []int32) (holders []int32, size float64, err error) {
	size = s.nodes[i].size
	for g := range s.ties {
		outside, some := s.outside(i, &s.ties[g])
		if !some {
			continue
		}
		for _, p := range outside {
			h, ok := s.holder(p, list)
			if !ok && s.tolerant {
				if h, ok = s.holder(p, rest); !ok || s.inside(i, h) {
					continue
				}
			}
			if !ok {
				return nil, 0, errTie
			}
			holders = append(holders, h)
			size += s.nodes[h].size - s.nodes[p].size
		}
	}
	return holders, size, nil
}

// outside returns the names of a tie that are not in node i. some reports whether any name is.
// Accelerate searches for the node's path anywhere in the name, so that "0" also matches
// "10.weight".
func (s *solver) outside(i int32, g *tie) (outside []int32, some bool) {
	for k, name := range g.names {
		in := s.inside(g.nodes[k], i)
		if !in && !s.tolerant {
			in = strings.Contains(name+".", s.nodes[i].path+".")
		}
		if in {
			some = true
		} else {
			outside = append(outside, g.nodes[k])
		}
	}
	return outside, some
}

// holder returns the module in list that has parameter p.
func (s *solver) holder(p int32, list []int32) (int32, bool) {
	for _, n := range list {
		if n != p && s.inside(p, n) {
			return n, true
		}
	}
	return 0, false
}

// bufferBytes returns the size of the buffers in module i. Special dtypes are looked up by
// the name within the module.
func (s *solver) bufferBytes(i int32) float64 {
	sum := 0.0
	seen := map[*meta.Buffer]bool{}
	prefix := len(s.nodes[i].path) + 1
	if i == 0 {
		prefix = 0
	}
	for n := i + 1; n < s.nodes[i].end; n++ {
		if b := s.nodes[n].buffer; b != nil && !seen[b] {
			seen[b] = true
			sum += s.sizes(s.nodes[n].path[prefix:], b.DType, meta.Elements(b.Shape))
		}
	}
	return sum
}

// result returns the result of a finished run.
func (s *solver) result(o Options) *InferredMap {
	r := &InferredMap{Minimum: s.minimum, Own: s.tolerant}
	for k, i := range s.placed {
		r.Raw.Set(s.nodes[i].path, s.slots[s.on[k]].device)
	}
	if s.tolerant {
		s.coverTies(&r.Raw)
	}
	r.Map = CleanDeviceMap(r.Raw)
	if !o.OffloadBuffers {
		r.BuffersOffGPU = s.buffersOffGPU()
	}
	if r.BuffersOffGPU > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("no GPU has room for the buffers of the offloaded modules, %s: "+
			"give a GPU more memory, or offload buffers too", FormatSize(int64(math.Ceil(r.BuffersOffGPU)))))
	}
	if s.tolerant {
		r.Warnings = append(r.Warnings, "tied parameters are in modules that cannot be placed together: "+
			"each module is where its own tensors fit")
	}
	return r
}

// coverTies adds names that no entry covers, such as those in the second of two equal modules,
// with the device of the name that holds the values.
func (s *solver) coverTies(m *Map) {
	for _, g := range s.ties {
		var home Device
		for _, n := range g.nodes {
			if !s.nodes[n].repeated {
				home, _ = m.Device(s.nodes[n].path)
			}
		}
		for _, name := range g.names {
			if _, ok := m.Device(name); !ok {
				m.Set(name, home)
			}
		}
	}
}

// buffersOffGPU returns the size of the buffers on CPU and disk, or 0 if a GPU has
// room for them or there is none.
func (s *solver) buffersOffGPU() float64 {
	sum, gpus := 0.0, false
	for _, d := range s.slots {
		if d.device.accelerator() {
			gpus = true
		} else {
			sum += d.buffers
		}
	}
	for _, d := range s.slots {
		if d.device.accelerator() && d.limit >= sum+d.used {
			return 0
		}
	}
	if !gpus {
		return 0
	}
	return sum
}
