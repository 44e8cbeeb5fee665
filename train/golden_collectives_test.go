package train

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

func TestGoldenCollectives(t *testing.T) {
	n := 0
	t.Cleanup(func() { golden.Count(t, "train/collectives", n) })
	for _, path := range golden.Glob(t, "train/collectives/ops_*.json") {
		var file map[string]json.RawMessage
		golden.JSON(t, path, &file)
		var world float64
		if err := json.Unmarshal(file["num_processes"], &world); err != nil {
			t.Fatal(err)
		}
		for op, raw := range file {
			var cases []exchangeCase
			switch {
			case op == "versions" || op == "num_processes":
				continue
			case bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")):
				cases = make([]exchangeCase, 1)
				decode(t, raw, &cases[0])
			default:
				decode(t, raw, &cases)
			}
			for i := range cases {
				n++
				t.Run(fmt.Sprintf("p%v/%s/%d", world, op, i), func(t *testing.T) {
					if err := cases[i].run(t.Context(), op, int(world)); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

type exchangeCase struct {
	In        any
	Dim       float64
	PadFirst  bool    `json:"pad_first"`
	PadIndex  float64 `json:"pad_index"`
	Reduction string
	From      float64 `json:"from_process"`
	Kind      string
	Padding   bool `json:"apply_padding"`
	Ranks     []exchangeRank
}

type exchangeRank struct {
	In, Out  any
	InShape  []float64 `json:"in_shape"`
	OutShape []float64 `json:"out_shape"`
	Dim      *float64
	whole    any // the value in place of an object: a message, or a value
}

func (r *exchangeRank) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &r.whole); err != nil {
		return err
	}
	type plain exchangeRank
	_ = json.Unmarshal(b, (*plain)(r)) // a message stays one
	return nil
}

func (c *exchangeCase) run(ctx context.Context, op string, world int) error {
	return Launch(ctx, world, func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w})
		if err != nil {
			return err
		}
		r := c.Ranks[w.Rank()]
		if r.In == nil {
			r.In = c.In
		}
		return c.rank(ctx, a, op, &r)
	})
}

func (c *exchangeCase) rank(ctx context.Context, a *Accelerator, op string, r *exchangeRank) error {
	var out any
	var err error
	switch op {
	case "gather":
		out, err = Gather(ctx, a, array(r.In, r.InShape))
	case "reduce":
		out, err = Reduce(ctx, a, array(r.In, r.InShape), Reduction(c.Reduction))
	case "broadcast":
		out, err = Broadcast(ctx, a, array(r.In, r.InShape), int(c.From))
	case "pad_across_processes":
		out, err = PadAcrossProcesses(ctx, a, array(r.In, r.InShape), PadOptions{Dim: int(c.Dim), Index: c.PadIndex, First: c.PadFirst})
	case "pad_across_processes_nested":
		out, err = PadAcrossProcesses(ctx, a, nestedValue(r.In), PadOptions{Dim: int(*r.Dim)})
		return first(err, sameValue(nestedValue(r.Out), out))
	case "gather_object":
		out, err = GatherObject(ctx, a, objects(r.In))
		return first(err, sameValue(objects(r.Out), out))
	case "broadcast_object_list":
		out, err = BroadcastObject(ctx, a, objects(r.In), 0)
		return first(err, sameValue(objects(r.Out), out))
	case "split_between_processes":
		return c.split(a, r)
	case "split_dict_unequal":
		x := map[string]any{"a": []any{1.0, 2.0}, "b": []any{1.0}}
		out, err = SplitBetweenProcesses(a, x, false)
		if _, failed := r.whole.(string); failed {
			if err == nil || !strings.Contains(err.Error(), "same length") {
				return fmt.Errorf("entries of unequal length: %v", err)
			}
			return nil
		}
		return first(err, sameValue(r.whole, out))
	default:
		return fmt.Errorf("an operation that this test does not know")
	}
	return first(err, sameValue(array(r.Out, r.OutShape), out))
}

func (c *exchangeCase) split(a *Accelerator, r *exchangeRank) error {
	if c.Kind == "tensor" {
		out, err := SplitBetweenProcesses(a, array(r.In, nil), c.Padding)
		return first(err, sameValue(array(r.Out, nil), out))
	}
	out, err := SplitBetweenProcesses(a, r.In, c.Padding)
	return first(err, sameValue(r.Out, out))
}

func sameValue(want, got any) error {
	if x, ok := want.(Array); ok { // sums and means of other orders differ in the last bit
		if y, ok := got.(Array); ok && slices.Equal(x.Shape, y.Shape) {
			return nearAll("numbers", wide(x.Data), y.Data)
		}
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// array is nested lists of numbers as an Array. Without a shape it is inferred.
func array(v any, shape []float64) Array {
	x := Array{Data: []float32{}, Shape: []int{}}
	for _, d := range shape {
		x.Shape = append(x.Shape, int(d))
	}
	for at := v; shape == nil; {
		list, ok := at.([]any)
		if !ok {
			break
		}
		x.Shape = append(x.Shape, len(list))
		if len(list) == 0 {
			break
		}
		at = list[0]
	}
	var flatten func(any)
	flatten = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				flatten(e)
			}
		case float64:
			x.Data = append(x.Data, float32(v))
		case bool:
			x.Data = append(x.Data, float32(b2i(v)))
		case string: // nan, inf, -inf
			f, err := strconv.ParseFloat(v, 32)
			if err != nil {
				f = math.NaN()
			}
			x.Data = append(x.Data, float32(f))
		}
	}
	flatten(v)
	return x
}

// nested turns the lists of nested maps into arrays.
func nestedValue(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return array(v, nil)
	}
	out := map[string]any{}
	for k, e := range m {
		out[k] = nestedValue(e)
	}
	return out
}

// objects are a list's elements, each as its JSON.
func objects(v any) []string {
	out := []string{}
	list, _ := v.([]any)
	for _, e := range list {
		b, _ := json.Marshal(e)
		out = append(out, string(b))
	}
	return out
}
