package grammar

import (
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/vocab"
)

// letters is a tokenizer of single letters.
type letters struct{}

func (letters) VocabSize() int                     { return 26 }
func (letters) TokenBytes(id int32) ([]byte, bool) { return []byte{'a' + byte(id)}, true }
func (letters) IsSpecial(int32) bool               { return false }
func (letters) Decode([]int32, bool) string        { return "" }

// TestSharedTerminalsAreBounded: patterns of requests are kept for other grammars, but never more than
// the limits allow, and what fails is not kept.
func TestSharedTerminalsAreBounded(t *testing.T) {
	l := NewLibrary(vocab.New(letters{}, 26))
	made := 0
	get := func(key string, size int) *Terminal {
		term, err := l.Shared(key, func() (*dfa.DFA, error) { made++; return dfa.Text(fmt.Sprintf("%0*d", size, 7)), nil })
		if err != nil {
			t.Fatal(err)
		}
		return term
	}
	if first := get("a", 3); first != get("a", 3) || made != 1 {
		t.Errorf("made %d times, want once", made)
	}
	before := l.Bytes()
	for i := range 3 * maxShared {
		get(fmt.Sprint(i), 5)
	}
	if n := l.used.Len(); n > maxShared || n != len(l.shared) {
		t.Errorf("%d terminals are kept, want at most %d", n, maxShared)
	}
	for i := range 40 {
		get(fmt.Sprint("large ", i), 20_000)
	}
	if grown := l.Bytes() - before; grown > 2*maxSharedBytes {
		t.Errorf("%d bytes are kept, want at most %d", grown, maxSharedBytes)
	}
	if _, err := l.Shared("fails", func() (*dfa.DFA, error) { return nil, dfa.ErrTooLarge }); err == nil || l.shared["fails"] != nil {
		t.Error("a failure is kept")
	}
}
