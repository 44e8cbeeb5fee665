package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
)

// A prompter asks the user questions on a terminal.
type prompter struct {
	in  io.Reader
	out io.Writer
}

// onTerminal returns the terminal from which the process was started. ok is false if standard input
// or standard error is anything else, such as a file or a service manager's pipe.
func onTerminal() (p prompter, ok bool) {
	for _, f := range []*os.File{os.Stdin, os.Stderr} {
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			return p, false
		}
	}
	return prompter{os.Stdin, os.Stderr}, true
}

// yes asks a question. Only an explicit yes counts.
func (p prompter) yes(question string) bool {
	fmt.Fprintf(p.out, "%s [y/N] ", question)
	line, err := bufio.NewReader(p.in).ReadString('\n')
	if err != nil {
		return false
	}
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes"
}

// offerPull offers to pull the model that err reports missing from the cache, if the user of the
// terminal agrees. It returns nil once the model is in the cache, and otherwise err or the error of
// pulling.
func offerPull(ctx context.Context, p prompter, err error) error {
	var missing *hub.MissingError
	if !errors.As(err, &missing) {
		return err
	}
	client, failed := hubClient(0)
	if failed != nil {
		return failed
	}
	defer client.Close()
	question := fmt.Sprintf("%s is not in the cache. Pull it?", missing.Model())
	if missing.GGUF == "" {
		size, failed := client.PullSize(ctx, missing.Repo, missing.Revision)
		if failed != nil {
			return fmt.Errorf("%w; the hub could not be reached either: %w", err, failed)
		}
		question = fmt.Sprintf("%s is not in the cache. Pull it (%s)?", missing.Model(), gib(size))
	}
	if !p.yes(question) {
		return err
	}
	view := newPullView(cmdline.Diagnostics{Writer: p.out})
	snapshot, failed := client.Pull(ctx, missing.Repo, hub.PullOptions{Revision: missing.Revision, GGUF: missing.GGUF, Progress: view.tell})
	view.end(snapshot)
	return failed
}
