"""DEVICES: device type -> Device."""

from tracework_runtime.device.cpu import CpuDevice
from tracework_runtime.device.cuda import CudaDevice
from tracework_runtime.device.device import Device

__all__ = ["DEVICES", "Device"]

DEVICES: dict[str, Device] = {device.type: device for device in (CpuDevice(), CudaDevice())}
