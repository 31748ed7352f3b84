// A versitygw without the stores, services and commands that tests do not use: it is built in a
// third of the time.
//
//	versitygw ADDRESS FOLDER ACCESS_KEY SECRET_KEY REGION
package main

import (
	"log"
	"os"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

const atOnce = 1000

func main() {
	address, folder, access, secret, region := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	objects, err := posix.New(folder, meta.XattrMeta{}, posix.PosixOpts{})
	if err != nil {
		log.Fatal(err)
	}
	root := auth.Account{Access: access, Secret: secret, Role: auth.RoleAdmin}
	server, err := s3api.New(
		objects, middlewares.RootUserConfig{Access: access, Secret: secret}, region,
		auth.NewIAMServiceSingle(root), nil, nil, nil, nil,
		s3api.WithQuiet(), s3api.WithKeepAlive(), s3api.WithHealth("/health"),
		s3api.WithConcurrencyLimiter(atOnce, atOnce),
	)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.ServeMultiPort([]string{address}))
}
