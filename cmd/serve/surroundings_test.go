package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestACacheFolderThatCannotBeMadeIsSaidOnce: with HOME=/dev/null the log called measurements damaged that were never
// made, and each part that keeps something complained.
func TestACacheFolderThatCannotBeMadeIsSaidOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no folder")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"user's": nil, "--cache-dir": {"--cache-dir", filepath.Join(file, "heft")}} {
		t.Run(name, func(t *testing.T) {
			if args == nil {
				t.Setenv("XDG_CACHE_HOME", file)
				t.Setenv("LocalAppData", file)
			}
			p := start(t, append(args, "--max-model-len", "256")...)
			answer, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":[5],"max_tokens":2}`))
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("got status %d, want 200", answer.StatusCode)
			}
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-p.end
			text := p.log.String()
			if strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "the cache folder cannot be made") {
				t.Errorf("got the log\n%s\nwant one warning, of the folder", text)
			}
		})
	}
}
