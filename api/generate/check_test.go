package generate_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

func demoModel(t *testing.T) (*dispatch.Model, *generate.Model) { return demoModelOf(t, 64) }

// demoModelOf is demoModel with a context of so many tokens.
func demoModelOf(t *testing.T, context int) (*dispatch.Model, *generate.Model) {
	t.Helper()
	d, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{Threads: 1, Context: context})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	m, err := generate.New(d, generate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return d, m
}

// TestEmptyConstraintsMadeEmptyAnswers: a constraint without a field, such as one with a list of no choices, allowed the
// empty text only, and one with two fields used the first. An empty stop string ended every answer before it began.
func TestEmptyConstraintsMadeEmptyAnswers(t *testing.T) {
	_, m := demoModel(t)
	for name, o := range map[string]generate.TextOptions{
		"constraint: 'constraint' has 0 of": {Constraint: &generate.Constraint{Choice: []string{}}},
		"constraint: 'constraint' has 2 of": {Constraint: &generate.Constraint{Object: true, Regex: "a"}},
		"format: 'format' has 2 of":         {Constraint: &generate.Constraint{Field: "format", Schema: json.RawMessage(`{}`), GBNF: "root ::= \"a\""}},
		"stop: Invalid value for 'stop'":    {Stop: []string{"x", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := m.Complete(t.Context(), "Hello", o)
			var invalid *wire.Error
			if !errors.As(err, &invalid) || invalid.Kind != wire.Invalid || !strings.Contains(err.Error(), name) {
				t.Errorf("got %q and %v, want an error with %q", s, err, name)
			}
		})
	}
}

// TestErrorsOfRequestsFromGoNamedNoField: requests without Param failed with "Invalid value for ”", and negative numbers
// counted as 0.
func TestErrorsOfRequestsFromGoNamedNoField(t *testing.T) {
	_, m := demoModel(t)
	ctx := t.Context()
	start := func(r generate.Request) error { _, err := m.Start(ctx, r); return err }
	embed := func(r generate.EmbedRequest) error { _, _, err := m.Embed(ctx, r); return err }
	for want, err := range map[string]error{
		"Invalid value for 'prompt'":         start(generate.Request{}),
		"Invalid value for 'n'":              start(generate.Request{Prompt: []int32{1}, N: -1}),
		"Invalid value for 'prompts'":        embed(generate.EmbedRequest{Prompts: [][]int32{{}}}),
		"Invalid value for 'dimensions': -1": embed(generate.EmbedRequest{Prompts: [][]int32{{1}}, Dimensions: -1}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestASourceWithoutOpenEndedTheProcess: so did one whose Open returns neither a model nor an error, as they panicked in a
// goroutine of the package.
func TestASourceWithoutOpenEndedTheProcess(t *testing.T) {
	models := generate.NewCatalog(generate.ModelsOptions{})
	defer models.Close()
	if err := models.Add(generate.Source{Name: "m"}); err == nil || err.Error() != "generate: model m: Source.Open is nil" {
		t.Errorf("got %v of a source without Open", err)
	}
	for name, opened := range map[string]*generate.Opened{"nil": nil, "empty": {}} {
		open := func(context.Context) (*generate.Opened, error) { return opened, nil }
		if err := models.Add(generate.Source{Name: name, Open: open}); err != nil {
			t.Fatal(err)
		}
		if err := models.Take(name, opened); err == nil {
			t.Errorf("%s: taken", name)
		}
		if _, err := models.Use(t.Context(), name); err == nil || !strings.Contains(err.Error(), "Source.Open has returned no model") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestNewOfAClosedModelWasNoError: each request failed instead.
func TestNewOfAClosedModelWasNoError(t *testing.T) {
	d, m := demoModel(t)
	m.Close()
	d.Close()
	if _, err := generate.New(d, generate.Options{}); !errors.Is(err, dispatch.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if _, err := generate.New(d, generate.Options{DraftNext: []*dispatch.Model{d}}); err == nil {
		t.Error("modules without the first one were taken")
	}
}

// TestNewOfTheZeroModelPanicked: so did one of nil in a list of models.
func TestNewOfTheZeroModelPanicked(t *testing.T) {
	for _, d := range []*dispatch.Model{nil, {}} {
		if _, err := generate.New(d, generate.Options{}); err == nil || err.Error() != "generate: new: got a nil model, or one that dispatch has not opened" {
			t.Errorf("got %v", err)
		}
	}
	if known := generate.NewModels(nil, &generate.Model{}).Known(); len(known) > 0 {
		t.Errorf("got %v", known)
	}
}

// TestAModelClosedUnderItsEngineFreedWeightsInUse: a dispatched model that was closed before the generate.Model made of it
// unmapped the weights that a pass was reading.
func TestAModelClosedUnderItsEngineFreedWeightsInUse(t *testing.T) {
	const most = 2000 // many more than there are before the model is closed
	d, m := demoModelOf(t, 2048)
	var last error
	pieces := 0
	for _, err := range m.Stream(t.Context(), "Hello", generate.TextOptions{Params: &generate.Params{MinTokens: most}, MaxTokens: most}) {
		if pieces++; pieces == 1 {
			d.Close()
		}
		last = err
	}
	var draining *wire.Error
	if !errors.As(last, &draining) || draining.Kind != wire.Draining {
		t.Errorf("the stream ended with %v after %d pieces, want the error of a closed model", last, pieces)
	}
	if _, err := m.Complete(t.Context(), "Hello", generate.TextOptions{}); err == nil || !m.Draining() {
		t.Errorf("got %v of a closed model", err)
	}
}
