package model

import (
	"slices"
	"testing"

	"github.com/heftai/heft/train/tensor"
)

// Gradients of a model were complete at the end of its backward pass only, so that nothing of their exchange
// came during it. The last block's are complete before the first block is reversed.
func TestGradientsAreCompleteUnitByUnit(t *testing.T) {
	dir := ownModel(t, "lfm2")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	batch := Batch{IDs: []int{1, 2, 3, 4, 5, 6, 7, 8}, Length: 8}
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	loss, err := m.Loss(tape, batch, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var order []*tensor.Parameter
	early := map[*tensor.Parameter][]float32{}
	missing := 0 // parameters without a gradient when the first one was ready
	err = tensor.BackwardReady(loss, 1, func(p *tensor.Parameter) {
		if len(order) == 0 {
			for _, q := range m.Parameters() {
				if !q.HasGrad() {
					missing++
				}
			}
		}
		order, early[p] = append(order, p), slices.Clone(p.Grad())
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range m.Parameters() {
		if p.Trainable && !slices.Equal(early[p], p.Grad()) {
			t.Errorf("%s: the gradient changed after it was reported", name)
		}
	}
	first, last := m.units[0].trained[0], m.units[len(m.units)-2].trained[0]
	if slices.Index(order, last) < 0 || slices.Index(order, last) > slices.Index(order, first) || missing == 0 {
		t.Errorf("the last block's parameter came at %d, the first unit's at %d, and %d others had no gradient at first, want some",
			slices.Index(order, last), slices.Index(order, first), missing)
	}
}

// A pass forwards took the memory of the gradients of all matrices, so that gradients that ranks of one process
// exchange block by block were all in memory on each rank.
func TestPassesForwardsTakeNoGradients(t *testing.T) {
	dir := ownModel(t, "olmo2")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	loss, err := m.Loss(tape, Batch{IDs: []int{1, 2, 3, 4, 5, 6, 7, 8}, Length: 8}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	body, pool := map[*tensor.Parameter]bool{}, new(tensor.GradPool)
	for _, u := range m.units[:len(m.units)-1] {
		for _, p := range u.trained {
			p.PoolGrad(pool)
			if body[p] = true; p.HasGrad() {
				t.Fatalf("a parameter of shape %v has a gradient before Backward", p.Shape())
			}
		}
	}
	memory, left := map[*float32]bool{}, len(body)
	err = tensor.BackwardReady(loss, 1, func(p *tensor.Parameter) {
		if body[p] {
			memory[&p.Grad()[0]] = true
			p.ZeroGrad() // as a rank that does not own it
			left--
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if left != 0 || len(memory) > len(body)*2/3 {
		t.Errorf("%d gradients took the memory of %d, and %d were never complete; want those of one of two blocks", len(body), len(memory), left)
	}
}
