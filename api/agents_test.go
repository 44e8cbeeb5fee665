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

// agentServer answers the first request of an agent with a call and the requests that have its result, which say so in their
// body, with a text. It counts those whose result has the text of the note.
func agentServer(t *testing.T, call, result string) (url string, results *atomic.Int32) {
	first, last := roomy(t, call), roomy(t, "Then it ends.")
	results = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		if !strings.Contains(string(b), result) {
			first.ServeHTTP(w, r)
			return
		}
		if strings.Contains(string(b), "the word is heron") {
			results.Add(1)
		}
		last.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, results
}

// note is a file that an agent reads.
func note(t *testing.T) (dir, path string) {
	dir = t.TempDir()
	path = filepath.Join(dir, "note.txt")
	if err := os.WriteFile(path, []byte("the word is heron\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, path
}

// TestClaudeCodeFinishesAToolLoop runs Claude Code against this server: it makes the call of the first answer,
// which reads a file, sends the result and prints the second answer. scripts/check-claude-code.sh installs it.
func TestClaudeCodeFinishesAToolLoop(t *testing.T) {
	binary := os.Getenv("HEFT_CLAUDE_CODE")
	testenv.Need(t, "claude-code", binary != "", "run scripts/check-claude-code.sh")
	dir, path := note(t)
	url, results := agentServer(t, "<tool_call>\n{\"name\": \"Bash\", \"arguments\": {\"command\": \"cat "+path+"\", \"description\": \"Read the note\"}}\n</tool_call>", `"tool_result"`)
	c := exec.CommandContext(t.Context(), binary, "-p", "What is the word?", "--allowedTools", "Bash", "--model", "fake")
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+dir, "ANTHROPIC_BASE_URL="+url, "ANTHROPIC_API_KEY=key", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	out, err := c.Output()
	if err != nil || strings.TrimSpace(string(out)) != "Then it ends." || results.Load() == 0 {
		t.Errorf("%v: Claude Code prints %q, and has sent %d results", err, out, results.Load())
	}
}

// TestCodexFinishesAToolLoop runs Codex with the lines of config.toml that docs/http.md has. scripts/check-codex.sh installs it.
func TestCodexFinishesAToolLoop(t *testing.T) {
	binary := os.Getenv("HEFT_CODEX")
	testenv.Need(t, "codex", binary != "", "run scripts/check-codex.sh")
	dir, path := note(t)
	url, results := agentServer(t, "<tool_call>\n{\"name\": \"exec_command\", \"arguments\": {\"cmd\": \"cat "+path+"\"}}\n</tool_call>", `"function_call_output"`)
	out := codex(t, binary, dir, url)
	if out != "Then it ends." || results.Load() == 0 {
		t.Errorf("Codex prints %q, and has sent %d results", out, results.Load())
	}
}

// codex asks Codex a question in dir and returns its answer.
func codex(t *testing.T, binary, dir, url string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(page), "```toml\n")
	config, _, _ = strings.Cut(config, "```")
	config = strings.NewReplacer("http://127.0.0.1:8000", url, "NAME", "fake").Replace(config)
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), binary, "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--strict-config", "What is the word?")
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+home, "CODEX_HOME="+home, "OPENAI_API_KEY=key")
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.Output()
	if err != nil {
		t.Errorf("Codex: %v\n%s", err, log.Bytes())
	}
	return strings.TrimSpace(string(out))
}
