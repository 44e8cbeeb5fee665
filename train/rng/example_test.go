package rng_test

import (
	"fmt"

	"github.com/heftai/heft/train/rng"
)

// The numbers of torch.manual_seed(0); torch.rand(3); torch.randperm(5).
func ExampleNew() {
	g := rng.New(0)
	fmt.Printf("%.4f %.4f %.4f\n", g.Float32(), g.Float32(), g.Float32())
	fmt.Println(g.Perm(5))
	// Output:
	// 0.4963 0.7682 0.0885
	// [0 4 2 1 3]
}

// A generator continues where a saved one was.
func ExampleGenerator_MarshalBinary() {
	g := rng.New(42)
	g.Uint32()
	state, err := g.MarshalBinary()
	if err != nil {
		fmt.Println(err)
		return
	}
	again := new(rng.Generator)
	if err := again.UnmarshalBinary(state); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(g.Uint32() == again.Uint32())
	// Output: true
}
