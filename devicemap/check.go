package devicemap

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/heftai/heft/meta"
)

// ModuleSizes holds the sizes in bytes of the modules and tensors of a tree, in tree order.
type ModuleSizes struct {
	t *table
}

// ComputeModuleSizes adds up the sizes of every module, as Accelerate's compute_module_sizes
// does: parameters and all buffers, tied parameters only at their first name. dtype and special
// are as in [Options].
func ComputeModuleSizes(root *meta.Module, dtype string, special map[string]string) (*ModuleSizes, error) {
	sizes, err := accelerateSizing(dtype, special)
	if err != nil {
		return nil, err
	}
	t, err := newTable(root, sizes)
	if err != nil {
		return nil, err
	}
	return &ModuleSizes{t}, nil
}

// Of returns the size in bytes of the module or tensor at path. The empty path is the whole
// model. ok is false for names without a size of their own: parameters tied to an earlier name,
// and modules without tensors.
func (s *ModuleSizes) Of(path string) (bytes float64, ok bool) {
	i, ok := s.t.find(path)
	if !ok || !s.t.nodes[i].counted && i != 0 {
		return 0, false
	}
	return s.t.nodes[i].size, true
}

// Total returns the size of the model in bytes.
func (s *ModuleSizes) Total() float64 { return s.t.nodes[0].size }

// Buffers returns the size of all buffers in bytes.
func (s *ModuleSizes) Buffers() float64 {
	sum := 0.0
	for i := range s.t.nodes {
		if n := &s.t.nodes[i]; n.buffer != nil {
			sum += n.size
		}
	}
	return sum
}

// LargestLayer returns the size in bytes of the largest layer, and the names of all layers of this
// size in tree order. A layer is a module without children, a module of one of the classes, or a
// tensor of the root itself.
func (s *ModuleSizes) LargestLayer(noSplit []string) (bytes float64, paths []string) {
	solve := newSolver(s.t, nil, Options{NoSplitModuleClasses: noSplit})
	for i, largest := range solve.isLargest {
		if largest {
			paths = append(paths, s.t.nodes[i].path)
		}
	}
	return solve.largest, paths
}

// FindTiedParameters lists the names of each parameter that has several. Names and groups are in
// alphabetical order.
func FindTiedParameters(root *meta.Module) ([][]string, error) {
	t, err := newTable(root, countNothing)
	if err != nil {
		return nil, err
	}
	var groups [][]string
	for _, g := range t.ties {
		groups = append(groups, g.names)
	}
	return groups, nil
}

// An UncoveredError lists the tensors for which a map has no device, in the order of the model's
// state dict.
type UncoveredError struct{ Tensors []string }

// Error names the first tensors and counts the others.
func (e *UncoveredError) Error() string {
	const most = 20
	names, more := e.Tensors, ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return "devicemap: the map gives no device for " + strings.Join(names, ", ") + more
}

// CheckDeviceMap checks that m has a device for every parameter and persistent buffer of a tree,
// as Accelerate's check_device_map does. unknown lists the paths of m that are not modules; this
// includes names of tensors, although these cover their tensor. The error is an
// *[UncoveredError].
func CheckDeviceMap(root *meta.Module, m Map) (unknown []string, err error) {
	t, err := newTable(root, countNothing)
	if err != nil {
		return nil, err
	}
	for path := range m.All() {
		if path == "" {
			continue
		}
		if i, ok := t.find(path); !ok || t.nodes[i].module == nil || t.nodes[i].repeated {
			unknown = append(unknown, path)
		}
	}
	if missing := t.uncovered(m); len(missing) > 0 {
		return unknown, &UncoveredError{missing}
	}
	return unknown, nil
}

// uncovered lists the tensors of the state dict without a device in m, module by module:
// parameters, persistent buffers, then children.
func (t *table) uncovered(m Map) []string {
	var missing []string
	for i := range t.nodes {
		n := &t.nodes[i]
		if n.module != nil || n.buffer != nil && !n.buffer.Persistent {
			continue
		}
		if _, ok := m.Device(n.path); !ok && !t.coveredByExpert(m, int32(i)) {
			missing = append(missing, n.path)
		}
	}
	return missing
}

// coveredByExpert reports whether tensor i is a stack of experts, each of which m places.
func (t *table) coveredByExpert(m Map, i int32) bool {
	path := t.nodes[i].path
	module, ok := t.find(path[:max(0, strings.LastIndexByte(path, '.'))])
	if !ok || t.stack(module) == 0 {
		return false
	}
	for e := range t.stack(module) {
		if _, ok := m.Device(meta.Join(t.nodes[module].path, strconv.Itoa(e))); !ok {
			return false
		}
	}
	return true
}
