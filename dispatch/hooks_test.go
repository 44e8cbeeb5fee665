package dispatch_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestHookErrorsEndThePass: a hook could only look; what it found wrong went on. Forward returns
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
