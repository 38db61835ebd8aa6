# Serves a RAM disk by SRP to the guest itself, and verifies what fio writes.
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/target
mkdir -p core/iblock_0/ram
echo udev_path=/dev/ram1 >core/iblock_0/ram/control
echo 1 >core/iblock_0/ram/enable
mkdir srpt
echo 5555 >srpt/discovery_auth/rdma_cm_port
guid=$(cut -d: -f5- /sys/class/infiniband/mlx5_0/ports/1/gids/0)
mkdir -p "srpt/$guid/$guid"
group=$PWD/srpt/$guid/$guid
echo 128 >"$group/attrib/srp_sq_size" # the default does not fit into a send queue of mlx5, and the driver says so
mkdir "$group/lun/lun_0"
ln -s "$PWD/core/iblock_0/ram" "$group/lun/lun_0/ram"
mkdir "$group/acls/10.9.0.1"
mkdir "$group/acls/10.9.0.1/lun_0"
ln -s "$group/lun/lun_0" "$group/acls/10.9.0.1/lun_0/lun"
echo 1 >"$group/enable"

id=$(tr -d : </sys/class/infiniband/mlx5_0/node_guid)
echo "id_ext=$id,ioc_guid=$id,dest=10.9.0.1:5555" >/sys/class/infiniband_srp/srp-mlx5_0-1/add_target
until test -b /dev/sda; do sleep 0.1; done
cd /tmp
fio --name=write --filename=/dev/sda --direct=1 --rw=randwrite --bsrange=4k-256k --size=8M --ioengine=libaio \
	--iodepth=8 --verify=crc32c --verify_fatal=1 >/tmp/fio 2>&1 || { cat /tmp/fio; exit 1; }
cmp /dev/sda /dev/ram1

for port in /sys/class/srp_remote_ports/*; do echo 1 >"$port/delete"; done
while test -b /dev/sda; do sleep 0.1; done
cd /sys/kernel/config/target
echo 0 >"$group/enable"
echo 0 >srpt/discovery_auth/rdma_cm_port
rm "$group/acls/10.9.0.1/lun_0/lun"
rmdir "$group/acls/10.9.0.1/lun_0" "$group/acls/10.9.0.1"
rm "$group/lun/lun_0/ram"
rmdir "$group/lun/lun_0" "$group" "srpt/$guid" srpt
echo 0 >core/iblock_0/ram/enable 2>/dev/null || true
rmdir core/iblock_0/ram core/iblock_0
echo verified
