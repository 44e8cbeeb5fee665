package jsonschema_test

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
)

// TestAutomataOfRangesAreMadeAtFirstUse: the automaton of a range of numbers is made when a text comes to it. It reads the numbers
// in the range, an empty range is refused at once as before, and several texts may come to it together.
func TestAutomataOfRangesAreMadeAtFirstUse(t *testing.T) {
	bounds := []string{"-12.5", "-1", "0", "0.25", "1", "7", "7.5", "130"}
	for _, kind := range []string{"integer", "number"} {
		for _, low := range bounds {
			for _, high := range bounds {
				for _, strict := range []string{"", "exclusive"} {
					checkRange(t, kind, low, high, strict)
				}
			}
		}
	}
	g, err := jsonschema.Compile(grammar.NewLibrary(lib.Vocab()), []byte(`{"type":"array","items":{"type":"integer","minimum":-77,"maximum":4200}}`))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			if !g.Match(fmt.Sprintf("[%d,-77,4200]", i)) || g.Match("[4201]") {
				t.Error("one of several texts at once is read otherwise")
			}
		})
	}
	group.Wait()
}

func checkRange(t *testing.T, kind, low, high, strict string) {
	t.Helper()
	minimum, maximum := "minimum", "maximum"
	if strict != "" {
		minimum, maximum = "exclusiveMinimum", "exclusiveMaximum"
	}
	schema := fmt.Sprintf(`{"type":%q,%q:%s,%q:%s}`, kind, minimum, low, maximum, high)
	from, _ := strconv.ParseFloat(low, 64)
	to, _ := strconv.ParseFloat(high, 64)
	in := func(v float64) bool {
		return (v > from || v == from && strict == "") && (v < to || v == to && strict == "") && (kind == "number" || v == math.Trunc(v))
	}
	g, err := jsonschema.Compile(lib, []byte(schema))
	some := from < to || from == to && strict == ""
	if kind == "integer" {
		some = false
		for v := -13.0; v <= 131; v++ {
			some = some || in(v)
		}
	}
	if (err == nil) != some {
		t.Errorf("%s: %v, want numbers: %t", schema, err, some)
	}
	if err != nil {
		return
	}
	for _, text := range []string{"-13", "-12.5", "-12", "-1", "-0.5", "0", "0.25", "0.3", "1", "6", "7", "7.4", "7.5", "8", "129", "130", "131"} {
		v, _ := strconv.ParseFloat(text, 64)
		if g.Match(text) != in(v) {
			t.Errorf("%s: %s is read: %t", schema, text, !in(v))
		}
	}
}
