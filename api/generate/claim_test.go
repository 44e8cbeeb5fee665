package generate_test

import (
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

// TestASecondNewOfADispatchedModelIsAnError: two engines used one dispatched model at a time, and their passes
// wrote into each other's.
func TestASecondNewOfADispatchedModelIsAnError(t *testing.T) {
	open := func() *dispatch.Model {
		d, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, Context: 64})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		return d
	}
	d, other := open(), open()
	want := func(d *dispatch.Model, o generate.Options) {
		t.Helper()
		_, err := generate.New(d, o)
		if err == nil || !strings.Contains(err.Error(), "already belongs to the generate.Model first") {
			t.Fatalf("got %v, want an error that names the first model", err)
		}
	}
	start := func(d *dispatch.Model, o generate.Options) *generate.Model {
		t.Helper()
		m, err := generate.New(d, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	first := start(d, generate.Options{Name: "first"})
	want(d, generate.Options{})
	want(other, generate.Options{Draft: d})
	second := start(other, generate.Options{}) // a New that failed has taken nothing
	second.Close()
	first.Close()
	start(d, generate.Options{Name: "first", Draft: other})
	first.Close() // a further Close frees nothing that belongs to the new one
	want(d, generate.Options{})
	want(other, generate.Options{})
}

// TestAnUnknownParserOfAModelWithoutChatWasTaken: the name of a parser is checked although no chat uses it.
func TestAnUnknownParserOfAModelWithoutChatWasTaken(t *testing.T) {
	d, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	for _, o := range []generate.Options{{ToolCallParser: "nope"}, {ReasoningParser: "nope"}} {
		o.Text = &generate.Text{}
		if m, err := generate.New(d, o); err == nil || !strings.HasPrefix(err.Error(), "generate: new: text: ") {
			t.Errorf("got %v, %v, want an error that names the notation", m, err)
		}
	}
}
