package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/keys"
	"github.com/heftai/heft/internal/testenv"
)

// TestOperateFlagsAreChecked: values that cannot work are use errors that name the flag.
func TestOperateFlagsAreChecked(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(bad, []byte("- {name: a}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]operateFlags{
		"--tls-key":    {TLSCert: "a"},
		"--tls-cert":   {TLSCert: bad, TLSKey: bad},
		"--admin-addr": {AdminAddr: "6060"},
		"--api-keys":   {APIKeys: bad},
		"no such file": {APIKeys: bad + "x"},
	} {
		if err := f.open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}

// TestSystemdIsToldWhenTheServerIsReady: READY=1 once it listens, STOPPING=1 when it drains; the admin listener is on
// the loopback.
func TestSystemdIsToldWhenTheServerIsReady(t *testing.T) {
	testenv.Need(t, "unixgram", runtime.GOOS != "windows", "there are no datagram sockets in files")
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv(notifySocket, path)
	read := func() string {
		b := make([]byte, 100)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	f := operateFlags{AdminAddr: ":0"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop, err := f.operate(ctx, api.Access{})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "READY=1" {
		t.Errorf("systemd read %q", got)
	}
	stop()
	if got := read(); got != "STOPPING=1" {
		t.Errorf("systemd read %q", got)
	}
}

// TestTheFilesOfDeployAreValid: systemd takes the unit, and the keys are a file of --api-keys.
func TestTheFilesOfDeployAreValid(t *testing.T) {
	if set, err := keys.Open(filepath.FromSlash("../../deploy/keys.yaml")); err != nil || set.Len() != 3 {
		t.Errorf("deploy/keys.yaml: %v", err)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	testenv.Need(t, "systemd", err == nil, "there is no systemd-analyze")
	unit, err := os.ReadFile(filepath.FromSlash("../../deploy/heft.service"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "heft.service")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(unit), "/usr/local/bin/serve", self)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
