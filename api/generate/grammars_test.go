package generate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/grammar"
)

// schemaOf is a request for an object with n integers.
func schemaOf(n int) *Request {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"p%d":{"type":"integer"}`, i)
	}
	return &Request{Constraint: &Constraint{Schema: []byte(`{"type":"object","properties":{` + strings.TrimPrefix(b.String(), ",") + `}}`)}}
}

// slowSchema takes more steps than a quick schema may, and is shorter than quickText.
const slowSchema = 2200

// queued runs f in a bubble with grammars of a model, of which no slow one is compiled until release is called. compile begins
// a compilation and returns where its result arrives.
func queued(t *testing.T, f func(t *testing.T, compile func(context.Context, *Request) <-chan compiling, release func())) {
	t.Helper()
	m := templateModel(t, []byte("{{ messages[0].content }}"), false)
	synctest.Test(t, func(t *testing.T) {
		c := newGrammars()
		c.library(m)
		c.slow <- struct{}{}
		f(t, func(ctx context.Context, r *Request) <-chan compiling {
			done := make(chan compiling, 1)
			go func() {
				g, err := c.get(ctx, m, r)
				done <- compiling{grammar: g, err: err}
			}()
			synctest.Wait()
			return done
		}, func() { <-c.slow })
		if len(c.pending) != 0 || len(c.quick) != 0 {
			t.Errorf("%d grammars are still compiled", len(c.pending))
		}
	})
}

// compiled returns the grammar of a compilation that has ended.
func compiled(t *testing.T, done <-chan compiling) *grammar.Grammar {
	t.Helper()
	synctest.Wait()
	select {
	case p := <-done:
		if p.err != nil {
			t.Fatal(p.err)
		}
		return p.grammar
	default:
		t.Fatal("the grammar is not compiled yet")
	}
	return nil
}

// TestSmallSchemasDoNotWaitForALargeOne: a schema that took seconds held up all requests with other schemas.
func TestSmallSchemasDoNotWaitForALargeOne(t *testing.T) {
	long := schemaOf(3)
	long.Constraint.Schema = append(long.Constraint.Schema, strings.Repeat(" ", quickText)...)
	for name, large := range map[string]*Request{"many steps": schemaOf(slowSchema), "a long text": long} {
		if n := large.Constraint.size(); n > quickText && large != long {
			t.Fatalf("the schema has %d bytes, want at most %d: its text alone makes it slow", n, quickText)
		}
		queued(t, func(t *testing.T, compile func(context.Context, *Request) <-chan compiling, release func()) {
			waits := compile(t.Context(), large)
			compiled(t, compile(t.Context(), schemaOf(4)))
			compiled(t, compile(t.Context(), schemaOf(5)))
			if len(waits) > 0 {
				t.Errorf("%s: a large schema took the turn of a small one", name)
			}
			release()
			if g := compiled(t, waits); !g.Match(`{"p0":1,"p2":-5}`) || g.Match(`{"p0":"a"}`) {
				t.Errorf("%s: the schema is enforced wrongly", name)
			}
		})
	}
}

// TestASchemaIsCompiledOnce: requests that wait for the same schema have one grammar.
func TestASchemaIsCompiledOnce(t *testing.T) {
	queued(t, func(t *testing.T, compile func(context.Context, *Request) <-chan compiling, release func()) {
		first, second := compile(t.Context(), schemaOf(slowSchema)), compile(t.Context(), schemaOf(slowSchema))
		release()
		g := compiled(t, first)
		if compiled(t, second) != g || compiled(t, compile(t.Context(), schemaOf(slowSchema))) != g {
			t.Error("one schema was compiled twice")
		}
	})
}

// TestAClientThatLeavesCompilesNothing: its request waited on, and its schema was compiled for no answer. Another request for the
// same schema has its grammar.
func TestAClientThatLeavesCompilesNothing(t *testing.T) {
	queued(t, func(t *testing.T, compile func(context.Context, *Request) <-chan compiling, release func()) {
		ctx, leave := context.WithCancel(t.Context())
		first, second, third := compile(ctx, schemaOf(slowSchema)), compile(t.Context(), schemaOf(slowSchema)), compile(ctx, schemaOf(slowSchema))
		leave()
		synctest.Wait()
		for _, done := range []<-chan compiling{first, third} {
			var left *wire.Error
			if p := <-done; !errors.As(p.err, &left) || left.Kind != wire.Interrupted {
				t.Errorf("got %v, want an error that says that the client has left", p.err)
			}
		}
		release()
		compiled(t, second)
	})
}
