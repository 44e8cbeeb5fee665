// Hooks looks into a forward pass: a hook measures the hidden states after every block, another ends
// a pass with an error, and a hook that is removed is not called any more.
//
//	go run ./examples/hooks
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

var errTooLarge = errors.New("the hidden states are larger than the limit")

// norm is the root mean square of a call's hidden states.
func norm(c *dispatch.ModuleCall) float64 {
	sum := 0.0
	for _, v := range c.Hidden {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(c.Hidden)))
}

// pass computes a prompt.
func pass(ctx context.Context, m *dispatch.Model) error {
	s := m.NewSequence()
	defer s.Free()
	_, err := m.Forward(ctx, &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{1, 40, 41, 42}, Logits: dispatch.LogitsLast}}})
	return err
}

func write(ctx context.Context, to io.Writer) error {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Context: 64})
	if err != nil {
		return err
	}
	defer model.Close()
	look, err := model.AddHook(dispatch.Hook{Post: func(c *dispatch.ModuleCall) error {
		_, err := fmt.Fprintf(to, "%-20s %4d values, rms %.2f\n", c.Path, len(c.Hidden), norm(c))
		return err
	}})
	if err != nil {
		return err
	}
	if err := pass(ctx, model); err != nil {
		return err
	}
	look.Remove()

	guard, err := model.AddHook(dispatch.Hook{Paths: []string{"model.layers.1"}, Post: func(c *dispatch.ModuleCall) error {
		if norm(c) > 1e-3 {
			return errTooLarge
		}
		return nil
	}})
	if err != nil {
		return err
	}
	if err := pass(ctx, model); !errors.Is(err, errTooLarge) {
		return fmt.Errorf("the hook's error is lost: %w", err)
	} else if _, err := fmt.Fprintln(to, "the pass ends with:", err); err != nil {
		return err
	}
	guard.Remove()
	if err := pass(ctx, model); err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, "without the hook the model runs on")
	return err
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: hooks\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
