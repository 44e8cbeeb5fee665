package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/keys"
	"github.com/heftai/heft/internal/cmdline"
)

// operateFlags are for operators: keys with limits, TLS, and the admin listener.
type operateFlags struct {
	APIKeys   string `name:"api-keys" help:"Require a key from this YAML file of names, keys and limits." placeholder:"FILE"`
	TLSCert   string `name:"tls-cert" help:"Serve HTTPS with this PEM certificate; reloaded when it changes." placeholder:"FILE"`
	TLSKey    string `name:"tls-key" help:"Use this private key for --tls-cert." placeholder:"FILE"`
	AdminAddr string `name:"admin-addr" help:"Serve /debug/pprof on this address; :PORT is on loopback (default: off)." placeholder:"HOST:PORT"`

	keys        *keys.Set        // nil: none
	certificate *api.Certificate // nil: no TLS
}

// look is the interval at which files are checked for changes.
const look = 2 * time.Second

// open reads the files.
func (f *operateFlags) open() (err error) {
	if (f.TLSCert == "") != (f.TLSKey == "") {
		return cmdline.Misusef("got one of --tls-cert and --tls-key, want both or neither")
	}
	if f.AdminAddr != "" {
		if _, _, err := net.SplitHostPort(f.AdminAddr); err != nil {
			return cmdline.Misusef("--admin-addr: %w", err)
		}
	}
	if f.APIKeys != "" {
		if f.keys, err = keys.Open(f.APIKeys); err != nil {
			return cmdline.Misusef("--api-keys: %w", err)
		}
		if info, err := os.Stat(f.APIKeys); err == nil && info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
			slog.Warn("other users may read the API keys: run chmod 600", "file", f.APIKeys)
		}
	}
	if f.TLSCert != "" {
		if f.certificate, err = api.OpenCertificate(f.TLSCert, f.TLSKey); err != nil {
			return cmdline.Misusef("--tls-cert, --tls-key: %w", err)
		}
	}
	return nil
}

// scheme returns the URL scheme of the server.
func (f *operateFlags) scheme() string {
	if f.certificate != nil {
		return "https://"
	}
	return "http://"
}

// serve is like server.Serve, with TLS if there is a certificate. Connections wait in a backlog
// until their request arrives.
func (f *operateFlags) serve(server *http.Server, l net.Listener) error {
	l = api.Backlog(l, server)
	if f.certificate == nil {
		return server.Serve(l)
	}
	server.TLSConfig = f.certificate.Config()
	return server.ServeTLS(l, "", "")
}

// operate watches the files, serves the admin listener and notifies systemd that the server is
// ready, until ctx ends. stop notifies systemd that the server drains. It may be called more than
// once.
func (f *operateFlags) operate(ctx context.Context, a api.Access) (stop func(), err error) {
	admin, err := f.admin(ctx, a)
	if err != nil {
		return nil, err
	}
	if f.keys != nil {
		go f.keys.Watch(ctx, look)
	}
	if f.certificate != nil {
		go f.certificate.Watch(ctx, look)
	}
	f.followHangups(ctx)
	notify("READY=1")
	return sync.OnceFunc(func() {
		notify("STOPPING=1")
		if admin != nil {
			_ = admin.Close() // profiles still running are useless
		}
	}), nil
}

// admin starts the admin listener. It returns nil if there is none.
func (f *operateFlags) admin(ctx context.Context, a api.Access) (*http.Server, error) {
	if f.AdminAddr == "" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(f.AdminAddr)
	if err != nil {
		return nil, cmdline.Misusef("--admin-addr: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--admin-addr: %w", err)
	}
	if !onlyLocal(l.Addr()) {
		slog.Warn("the admin listener is not on a loopback address and asks for no key", "at", l.Addr())
	}
	server := api.NewAdminServer(a)
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("the admin listener has ended", "reason", err)
		}
	}()
	slog.Info("profiles", "at", "http://"+l.Addr().String()+"/debug/pprof/")
	return server, nil
}

// reloads reports whether SIGHUP means to reload files: there are files to reload, or systemd runs
// the process. Otherwise SIGHUP means that the terminal has closed.
func (f *operateFlags) reloads() bool {
	return f.keys != nil || f.certificate != nil || os.Getenv(notifySocket) != ""
}

// followHangups reloads the files at SIGHUP.
func (f *operateFlags) followHangups(ctx context.Context) {
	if !f.reloads() {
		return
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			if f.keys != nil {
				f.keys.ReloadAndLog()
			}
			if f.certificate != nil {
				f.certificate.ReloadAndLog()
			}
		}
	}()
}

// notifySocket is the environment variable with the address of systemd's socket.
const notifySocket = "NOTIFY_SOCKET"

// notify notifies systemd about the state of a service of Type=notify. Without systemd it does
// nothing.
func notify(state string) {
	address := os.Getenv(notifySocket)
	if address == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err == nil {
		defer c.Close()
		_, err = c.Write([]byte(state))
	}
	if err != nil {
		slog.Warn("the state of the service could not be sent to systemd", "reason", err)
	}
}
