package api_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/engine/holder"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/internal/testenv"
)

// roomy is a model that always says the same and has a context for the prompts of agents.
func roomy(t *testing.T, says string) http.Handler {
	m := generatetest.Speaking(t, generatetest.Speaker{Template: hermesTemplate, Says: says}, engine.Options{})
	script, err := m.Encode(t.Context(), says+"<|over|>", false)
	if err != nil {
		t.Fatal(err)
	}
	fake := &enginetest.Model{Width: m.Tokenizer.VocabSize(), MaxLen: 1 << 19, Pages: 1 << 19}
	e := engine.New(&generatetest.Script{Model: fake, Tokens: script}, engine.Options{})
	t.Cleanup(e.Close)
	holder.SetEngine(m, e)
	return serve(t, m).Config.Handler
}

// TestClaudeCodeFinishesAToolLoop runs Claude Code against this server: it makes the call of the first answer,
// which reads a file, sends the result and prints the second answer. scripts/check-claude-code.sh installs it.
func TestClaudeCodeFinishesAToolLoop(t *testing.T) {
	binary := os.Getenv("HEFT_CLAUDE_CODE")
	testenv.Need(t, "claude-code", binary != "", "run scripts/check-claude-code.sh")
	dir := t.TempDir()
	note := filepath.Join(dir, "note.txt")
	if err := os.WriteFile(note, []byte("the word is heron\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := roomy(t, "<tool_call>\n{\"name\": \"Bash\", \"arguments\": {\"command\": \"cat "+note+"\", \"description\": \"Read the note\"}}\n</tool_call>")
	last := roomy(t, "Then it ends.")
	var results atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		if !strings.Contains(string(b), `"tool_result"`) {
			first.ServeHTTP(w, r)
			return
		}
		if strings.Contains(string(b), "the word is heron") {
			results.Add(1)
		}
		last.ServeHTTP(w, r)
	}))
	defer s.Close()
	c := exec.CommandContext(t.Context(), binary, "-p", "What is the word?", "--allowedTools", "Bash", "--model", "fake")
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+dir, "ANTHROPIC_BASE_URL="+s.URL, "ANTHROPIC_API_KEY=key", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	out, err := c.Output()
	if err != nil || strings.TrimSpace(string(out)) != "Then it ends." || results.Load() == 0 {
		t.Errorf("%v: Claude Code prints %q, and has sent %d results", err, out, results.Load())
	}
}
