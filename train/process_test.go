package train

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/heftai/heft/train/tensor"
)

func TestLocalProcesses(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	var order []int
	world(t, 3, func(ctx context.Context, a *Accelerator) error {
		note := func() error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, a.LocalProcessIndex())
			return nil
		}
		return first(a.Print(&out, "loss", 0.5), a.WaitForEveryone(ctx), a.OnLocalProcess(2, note), a.WaitForEveryone(ctx),
			a.LocalMainProcessFirst(ctx, note))
	})
	if out.String() != "loss 0.5\n" {
		t.Errorf("printed %q", out.String())
	}
	if len(order) != 4 || order[0] != 2 || order[1] != 0 {
		t.Errorf("the order is %v", order)
	}
}

func TestClearForgetsAll(t *testing.T) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := tensor.NewParameter([]float32{1})
	for range 2 {
		if err := a.Prepare(w); err != nil {
			t.Fatal(fmt.Errorf("after clearing: %w", err))
		}
		a.Clear()
	}
}
