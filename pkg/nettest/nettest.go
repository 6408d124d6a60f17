// Package nettest makes ends of a network that behave the same in each run of a test.
package nettest

import (
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Refused is an address ("127.0.0.1:PORT") that refuses every connection until the test ends. Its port is bound and nobody listens
// on it. A port that was listened on and given back would not do: another test may be given it a moment later.
func Refused(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
}
