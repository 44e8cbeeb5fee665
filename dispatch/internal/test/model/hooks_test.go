package model_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestHookErrorsEndThePass: a hook could not stop a pass. Forward returns
// its error with the unit's path, the sequence holds what it held, and the model runs on.
func TestHookErrorsEndThePass(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{Context: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := m.NewSequence()
	defer s.Free()
	pass := func() error {
		_, err := m.Forward(t.Context(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{5}, Logits: dispatch.LogitsLast}}})
		return err
	}
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	wrong := errors.New("wrong")
	for _, h := range []dispatch.Hook{
		{Paths: []string{"model.layers.1"}, Pre: func(*dispatch.ModuleCall) error { return wrong }},
		{Paths: []string{"model.layers.1"}, Post: func(*dispatch.ModuleCall) error { return wrong }},
	} {
		handle := dispatchtest.AddHook(t, m, h)
		err := pass()
		var hook *dispatch.HookError
		if !errors.Is(err, wrong) || !errors.As(err, &hook) || hook.Path != "model.layers.1" || s.Len() != 1 {
			t.Errorf("got %v with %d tokens", err, s.Len())
		}
		handle.Remove()
		handle.Remove()
	}
	if err := pass(); err != nil || s.Len() != 2 {
		t.Errorf("after the hooks were removed: %v", err)
	}
}

// TestHooksAreRemoved, by the hook itself too.
func TestHooksAreRemoved(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{Context: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var once, all []string
	var first *dispatch.HookHandle
	first = dispatchtest.AddHook(t, m, dispatch.Hook{Pre: func(c *dispatch.ModuleCall) error {
		once = append(once, c.Path)
		first.Remove()
		return nil
	}})
	last := dispatchtest.AddHook(t, m, dispatch.Hook{Pre: func(c *dispatch.ModuleCall) error { all = append(all, c.Path); return nil }})
	dispatchtest.Generate(t, m, []int32{1}, dispatch.GenerateOptions{MaxTokens: 1})
	last.Remove()
	dispatchtest.Generate(t, m, []int32{2}, dispatch.GenerateOptions{MaxTokens: 1})
	if !slices.Equal(once, m.Units()[:1]) || !slices.Equal(all, m.Units()) {
		t.Errorf("hooks ran at %v and %v", once, all)
	}
	if _, err := m.AddHook(dispatch.Hook{Paths: []string{"model.layer.1"}}); err == nil {
		t.Error("a hook at a unit that is not there was added")
	}
}

func TestHooksSeeEveryUnit(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var seen []string
	dispatchtest.AddHook(t, m, dispatch.Hook{
		Pre:  func(p *dispatch.ModuleCall) error { seen = append(seen, "pre "+p.Path); return nil },
		Post: func(p *dispatch.ModuleCall) error { seen = append(seen, "post "+p.Path); return nil },
	})
	dispatchtest.Generate(t, m, []int32{1}, dispatch.GenerateOptions{MaxTokens: 1})
	want := []string{"pre model.embed_tokens", "post model.embed_tokens"}
	for _, layer := range m.Skeleton().Root.Find("model.layers").Children {
		want = append(want, "pre model.layers."+layer.Name, "post model.layers."+layer.Name)
	}
	want = append(want, "pre model.norm", "post model.norm")
	if !slices.Equal(seen, want) {
		t.Errorf("hooks saw %v, want %v", seen, want)
	}
}

func TestHookMayChangeHiddenStates(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before := dispatchtest.Generate(t, m, []int32{9, 8}, dispatch.GenerateOptions{MaxTokens: 4})
	dispatchtest.AddHook(t, m, dispatch.Hook{Paths: []string{"model.layers.2"}, Post: func(p *dispatch.ModuleCall) error {
		for i := range p.Hidden {
			p.Hidden[i] *= -1
		}
		return nil
	}})
	width := m.Skeleton().Root.Find("model.norm").Param("weight").Shape[0]
	dispatchtest.AddHook(t, m, dispatch.Hook{Pre: func(p *dispatch.ModuleCall) error {
		if p.Path != "model.embed_tokens" && p.Width != width {
			t.Errorf("%s: hidden states of width %d", p.Path, p.Width)
		}
		return nil
	}})
	if after := dispatchtest.Generate(t, m, []int32{4, 8}, dispatch.GenerateOptions{MaxTokens: 4}); slices.Equal(before, after) {
		t.Errorf("hidden states were negated and nothing changed: %v", after)
	}
}
