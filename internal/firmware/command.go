package firmware

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// Execute executes a command of DevX that refers to no object. op is the operation for errors: see [Explain].
func Execute(dev *ioctl.Device, op string, in, out []byte) error {
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_OTHER)
	return do(dev, c, op, uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in, uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, out)
}

// do adds a command and its reply to c, and runs it.
func do(dev *ioctl.Device, c *ioctl.Cmd, op string, inID uint16, in []byte, outID uint16, out []byte) error {
	c.InRef(inID, in)
	c.OutRef(outID, out)
	return Explain(op, dev.Do(c), in, out)
}

// Create executes a command that creates an object of DevX, and returns the kernel's handle.
func Create(dev *ioctl.Device, op string, in, out []byte) (handle uint32, err error) {
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_CREATE)
	c.NewHandle(uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
	err = do(dev, c, op, uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in, uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out)
	return c.Made(uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE), err
}

// Destroy destroys an object that Create has created.
func Destroy(dev *ioctl.Device, handle uint32) error {
	return dev.Destroy(uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
		uapi.MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, handle)
}

// Query executes a command that queries an object of DevX or of the verbs.
func Query(dev *ioctl.Device, op string, handle uint32, in, out []byte) error {
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_QUERY)
	c.Handle(uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, handle)
	return do(dev, c, op, uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, in, uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, out)
}

// Modify executes a command that changes an object of DevX or of the verbs.
func Modify(dev *ioctl.Device, op string, handle uint32, in, out []byte) error {
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
	c.Handle(uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, handle)
	return do(dev, c, op, uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, in, uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, out)
}
