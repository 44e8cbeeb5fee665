package tcp

import (
	"net"
	"strconv"
)

// Loopback reports whether only this machine reaches host.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Join returns host:port.
func Join(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// FreePort returns a port of host that was free.
func FreePort(host string) (int, error) {
	lis, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	defer lis.Close()
	return lis.Addr().(*net.TCPAddr).Port, nil
}
