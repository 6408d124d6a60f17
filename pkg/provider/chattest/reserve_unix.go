//go:build unix

package chattest

import (
	"fmt"
	"net"
	"syscall"
)

// reserve binds a port without listening on it: connections are refused, and nobody else is given the number while
// the chat is away. The function returned gives it back.
func reserve(addr string) (func(), error) {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	family, sa := syscall.AF_INET6, syscall.Sockaddr(&syscall.SockaddrInet6{Port: a.Port, Addr: [16]byte(a.IP.To16())})
	if ip := a.IP.To4(); ip != nil {
		family, sa = syscall.AF_INET, &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(ip)}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("simulated chat: keep port %d: %w", a.Port, err)
	}
	syscall.CloseOnExec(fd)
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, sa)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("simulated chat: keep port %d: %w", a.Port, err)
	}
	return func() { _ = syscall.Close(fd) }, nil
}
