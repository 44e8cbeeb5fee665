package devicemap

import (
	"fmt"
	"math"
	"slices"

	"github.com/heftai/heft/meta"
)

// MaxMemory returns the memory to plan with, as Accelerate's get_max_memory does: memory, or
// available if memory is nil, in the order GPUs by number, mps, cpu, disk. If a device occurs
// twice, the last amount counts. MaxMemory returns an error for an unknown device.
func MaxMemory(memory, available []DeviceMemory) ([]DeviceMemory, error) {
	if memory == nil {
		memory = available
	}
	var list []DeviceMemory
	for _, m := range memory {
		if _, _, ok := m.Device.order(); !ok {
			return nil, fmt.Errorf("devicemap: unknown device %q: want a GPU's number, mps, cpu or disk", m.Device)
		}
		if math.IsNaN(m.Bytes) {
			return nil, fmt.Errorf("devicemap: the memory of device %s is not a number", m.Device)
		}
		if i := slices.IndexFunc(list, func(o DeviceMemory) bool { return o.Device == m.Device }); i >= 0 {
			list[i] = m
			continue
		}
		list = append(list, m)
	}
	slices.SortStableFunc(list, func(a, b DeviceMemory) int { return compareDevices(a.Device, b.Device) })
	return list, nil
}

// BalancedMemory returns the memory limits that spread the model evenly over the GPUs, as
// Accelerate's get_balanced_memory does. Every GPU but the last is limited to its share plus a
// buffer: 1.25 times the larger of the first block of each no-split class and the mean final
// module. With lowZero, GPU 0 gets only what the others cannot hold. Without a GPU the memory is
// unchanged. A single GPU of o.Available keeps a tenth free.
//
// Accelerate fails if the memory has a disk, and for lowZero if the numbers of the GPUs have a
// gap. BalancedMemory leaves the disk unchanged, and counts all other GPUs.
func BalancedMemory(root *meta.Module, o Options, lowZero bool) ([]DeviceMemory, error) {
	t, memory, err := o.measure(root)
	if err != nil {
		return nil, err
	}
	return balance(t, memory, o, lowZero), nil
}

// balance is BalancedMemory for a table, with the memory in order. It changes memory.
func balance(t *table, memory []DeviceMemory, o Options, lowZero bool) []DeviceMemory {
	var gpus []int // indices in memory of the GPUs with memory
	for i, m := range memory {
		if _, gpu := m.Device.GPU(); gpu && m.Bytes > 0 {
			gpus = append(gpus, i)
		}
	}
	if len(gpus) == 0 {
		return memory
	}
	shares := len(gpus)
	if shares == 1 {
		lowZero = false
		if o.MaxMemory == nil {
			memory[0].Bytes *= 0.9 // of the GPU with the lowest number, even if it is empty
		}
	}
	if lowZero {
		shares--
	}
	buffer := max(t.firstBlocks(o.NoSplitModuleClasses), t.meanFinal())
	share := math.Floor(t.nodes[0].size/float64(shares)) + math.Trunc(1.25*buffer)
	for _, i := range gpus[:len(gpus)-1] {
		if !lowZero || memory[i].Device != GPU(0) {
			memory[i].Bytes = min(share, memory[i].Bytes)
		}
	}
	if lowZero {
		leaveLast(memory, t.nodes[0].size, len(gpus))
	}
	return memory
}

// leaveLast limits GPU 0 to what the model needs beyond GPUs 1 to n-1, or beyond all others if
// these numbers have a gap.
func leaveLast(memory []DeviceMemory, total float64, n int) {
	sum, all, found := 0.0, 0.0, 0
	zero := -1
	for i, m := range memory {
		switch number, gpu := m.Device.GPU(); {
		case !gpu:
		case number == 0:
			zero = i
		default:
			all += m.Bytes
			if 0 < number && number < n {
				sum += m.Bytes
				found++
			}
		}
	}
	if zero < 0 {
		return
	}
	if found < n-1 {
		sum = all
	}
	memory[zero].Bytes = min(max(0, total-sum), memory[zero].Bytes)
}

// firstBlocks returns the size of the largest among the first modules of each class. Modules with
// parameters precede those with only buffers.
func (t *table) firstBlocks(classes []string) float64 {
	first := map[string]float64{}
	for _, params := range []bool{true, false} {
		for i := 1; i < len(t.nodes); i++ {
			n := &t.nodes[i]
			if !n.counted || n.hasParam != params {
				continue
			}
			class := n.class()
			if _, seen := first[class]; !seen && slices.Contains(classes, class) {
				first[class] = n.size
			}
		}
	}
	largest := 0.0
	for _, size := range first {
		largest = max(largest, size)
	}
	return largest
}

// class returns the node's class name in Python.
func (n *node) class() string {
	switch {
	case n.param != nil:
		return "Parameter"
	case n.buffer != nil:
		return "Tensor"
	}
	return n.module.Class
}

// meanFinal returns the mean size of the modules that hold tensors but have no descendants that
// do.
func (t *table) meanFinal() float64 {
	sum, count := 0.0, 0
	for i := int32(1); i < int32(len(t.nodes)); i++ {
		if t.nodes[i].module == nil || !t.nodes[i].counted {
			continue
		}
		final := true
		for c := i + 1; c < t.nodes[i].end; c = t.nodes[c].end {
			final = final && (t.nodes[c].module == nil || !t.nodes[c].counted)
		}
		if final {
			sum += t.nodes[i].size
			count++
		}
	}
	return math.Trunc(sum / float64(max(count, 1)))
}
