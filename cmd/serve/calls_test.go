//go:build unix

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
)

// TestStartWarnsOfUnreadToolCalls: a template that writes calls in a notation that cannot be
// read back says so at the start, with the flag that names one.
func TestStartWarnsOfUnreadToolCalls(t *testing.T) {
	const odd = `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}
do {{ c.function.name }} please{% for k, v in c.function.arguments.items() %}, {{ k }} is {{ v }}{% endfor %}{% endfor %}{% endfor %}`
	const warning = "tool calls are not parsed"
	for _, c := range []struct {
		name, template string
		args           []string
		warns          bool
	}{
		{"an unknown notation", odd, nil, true},
		{"a named notation", odd, []string{"--tool-call-parser", "hermes"}, false},
		{"no tools", `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}`, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, demo.Files()); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(c.template), 0o600); err != nil {
				t.Fatal(err)
			}
			p := start(t, append([]string{"--model", dir}, c.args...)...)
			for ready := false; !ready; time.Sleep(time.Millisecond) {
				answer, err := http.Get(p.url + "/health")
				if err != nil {
					t.Fatalf("%v\n%s", err, p.log)
				}
				ready = answer.StatusCode == http.StatusOK
				answer.Body.Close()
			}
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			<-p.end
			log := p.log.String()
			if warns := strings.Contains(log, warning) && strings.Contains(log, "--tool-call-parser"); warns != c.warns {
				t.Errorf("warns of calls: %v, want %v; the log:\n%s", warns, c.warns, log)
			}
		})
	}
}

// TestModelErrorsNamedTheParserFlags: an error of a model that has nothing to do with parsers was said to be a
// mistake in --tool-call-parser, --reasoning-parser.
func TestModelErrorsNamedTheParserFlags(t *testing.T) {
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	plan, options, err := dispatch.Plan(skeleton, dispatch.Options{Threads: 1, KVTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, options)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	first, err := generate.New(m, generate.Options{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = new(runCmd).generator(&loaded{name: "second", model: m}, first.Text, 1)
	if err == nil || !strings.HasPrefix(err.Error(), "generate: new: the dispatched model already belongs to the generate.Model first") {
		t.Errorf("a model that is in use: %v", err)
	}
}
